package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
)

// onNode runs a shell script on a node and returns what it prints.
func (s *scene) onNode(node, script string) string {
	s.t.Helper()
	out, err := s.cluster.NodeExec(s.ctx, node, "sh", "-ec", script)
	s.must(err)
	return out
}

// exists reports whether there is something at a path on a node.
func (s *scene) exists(node, path string) bool {
	s.t.Helper()
	return s.onNode(node, "if [ -e '"+path+"' ]; then echo yes; else echo no; fi") == "yes"
}

// existsOnlyOn checks where a path is there and where it is not.
func (s *scene) existsOnlyOn(node, path string) {
	s.t.Helper()
	if !s.exists(node, path) {
		s.t.Errorf("%s has no %s", node, path)
	}
	for _, other := range s.otherThan(node) {
		if s.exists(other, path) {
			s.t.Errorf("%s has %s, which belongs to %s alone", other, path, node)
		}
	}
}

// vanishes waits until there is nothing at a path on a node.
func (s *scene) vanishes(node, path string) {
	s.t.Helper()
	s.eventually(path+" is gone from "+node, func() (bool, string) {
		left := s.onNode(node, "[ ! -e '"+path+"' ] || ls -lad '"+path+"' '"+path+"'/* || true")
		return left == "", left
	})
}

// list names what is in a directory on a node.
func (s *scene) list(node, path string) []string {
	s.t.Helper()
	return strings.Fields(s.onNode(node, "ls -A '"+path+"'"))
}

// lines counts the lines of a file on a node.
func (s *scene) lines(node, path string) int {
	s.t.Helper()
	n, err := strconv.Atoi(s.onNode(node, "wc -l <'"+path+"'"))
	s.must(err)
	return n
}

// grows waits until a running pod has appended to its file: it has not lost
// its volume.
func (s *scene) grows(node, path string) {
	s.t.Helper()
	before := s.lines(node, path)
	s.eventually(path+" on "+node+" grows", func() (bool, string) {
		now := s.lines(node, path)
		return now > before, fmt.Sprintf("%d lines, as before", now)
	})
}

// growsAfterRestart restarts a node, and waits until a pod there appends to the same file again.
func (s *scene) growsAfterRestart(node, path string) {
	s.t.Helper()
	before := s.lines(node, path)
	s.must(s.cluster.RestartNode(s.ctx, node))
	s.eventually("the pod appends again, to the same file", func() (bool, string) {
		now := s.lines(node, path)
		return now > before, fmt.Sprintf("%d lines before, %d now", before, now)
	})
}

// sum is the SHA-256 of a file on a node.
func (s *scene) sum(node, path string) string {
	s.t.Helper()
	return firstWord(s.onNode(node, "sha256sum '"+path+"'"))
}

func firstWord(text string) string {
	word, _, _ := strings.Cut(text, " ")
	return word
}

// mountDisk puts a new ext4 filesystem on a loop device at a path on a node,
// until the feature is over. The kernel frees the device with the mount.
func (s *scene) mountDisk(node, name, size, path string) {
	s.t.Helper()
	file := diskImage(name)
	s.onNode(node, "rm -f "+file+"; truncate -s "+size+" "+file+"; mkfs.ext4 -q -F -m 0 "+file)
	s.mountImage(node, name, path)
}

// mountBtrfs does the same with btrfs. Its quota is off: a pool with quota: required turns it on.
func (s *scene) mountBtrfs(node, name, size, path string) {
	s.t.Helper()
	s.must(s.cluster.CopyBtrfs(s.ctx, node, diskImage(name), size))
	s.mountImage(node, name, path)
}

// diskImage is the file of a disk on a node.
func diskImage(name string) string { return disks + "/" + name + ".img" }

func (s *scene) mountImage(node, name, path string) {
	s.t.Helper()
	s.onNode(node, "mkdir -p "+path+"; mount -o loop "+diskImage(name)+" "+path)
	s.whenDone(func(ctx context.Context) error {
		_, err := s.cluster.NodeExec(ctx, node, "sh", "-ec", unmounted(path)+"rm -f "+diskImage(name))
		return err
	})
}

// unmounted is shell that unmounts all that is mounted at a path. The driver looks into each pool every two seconds,
// and what it has open then is busy.
func unmounted(path string) string {
	return "n=0; while mountpoint -q " + path + "; do umount " + path +
		" || { n=$((n+1)); [ $n -lt 100 ]; sleep 0.2; }; done\n"
}

// remountDisk mounts a disk again that mountDisk made.
func (s *scene) remountDisk(node, name, path string) {
	s.t.Helper()
	s.onNode(node, "mount -o loop "+diskImage(name)+" "+path)
}

func (s *scene) unmountDisk(node, path string) {
	s.t.Helper()
	s.onNode(node, unmounted(path))
}

// driverPod is the driver's pod on a node, ready.
func (s *scene) driverPod(node string) *corev1.Pod {
	s.t.Helper()
	var p *corev1.Pod
	s.eventually("one driver pod on "+node+" is ready", func() (bool, string) {
		var list corev1.PodList
		err := s.api.List(s.ctx, &list, resources.WithLabelSelector(componentLabel+"="+nodeComponent),
			resources.WithFieldSelector("spec.nodeName="+node))
		if err != nil || len(list.Items) != 1 {
			return false, fmt.Sprintf("%d pods, %v", len(list.Items), err)
		}
		p = &list.Items[0]
		return p.DeletionTimestamp == nil && isReady(p), describe(p)
	})
	return p
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// driver runs a command of the driver on a node ("status", "pool forget x").
func (s *scene) driver(node string, args ...string) string {
	s.t.Helper()
	return s.kubectl(inPod(s.driverPod(node), args...)...)
}

// inPod are kubectl's arguments for a command of the driver, or of the controller, in one of its pods. The last
// release's controller was the driver.
func inPod(p *corev1.Pod, args ...string) (command []string) {
	for _, c := range p.Spec.Containers {
		if c.Name != driverContainer && c.Name != controllerContainer {
			continue
		}
		command = []string{"exec", "--namespace", namespace, p.Name, "--container", c.Name, "--", "/" + c.Name}
		for _, arg := range c.Args {
			if strings.HasPrefix(arg, "--state-dir=") {
				command = append(command, arg)
			}
		}
	}
	return append(command, args...)
}

// restarts counts how often containers of a pod were restarted.
func restarts(p *corev1.Pod) (n int32) {
	for _, c := range p.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

// untouched checks that a pod has run on without a break.
func (s *scene) untouched(before *corev1.Pod) {
	s.t.Helper()
	now := s.running(before.Name)
	if now.UID != before.UID || restarts(now) != restarts(before) {
		s.t.Errorf("pod %s did not run on: uid %s is now %s, %d restarts are now %d",
			before.Name, before.UID, now.UID, restarts(before), restarts(now))
	}
}
