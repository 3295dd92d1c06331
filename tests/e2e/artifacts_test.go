package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
)

// enough is how long collecting may take: the cluster may be what is broken.
const enough = 2 * time.Minute

// collect writes all that is needed to understand a failure without the
// cluster to artifacts/<test>/<step>, and returns that folder and what is most
// important in it. What cannot be had is named in its file; nothing fails here.
func (s *suite) collect(ctx context.Context, test, step, namespaceOfTest string) string {
	folder := filepath.Join(s.artifacts, fileName(test), fileName(step))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: no artifacts:", err)
		return folder
	}
	if s.cluster == nil {
		return folder
	}
	// The test's own context may be over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), enough)
	defer cancel()
	s.collectObjects(ctx, folder, namespaceOfTest)
	s.collectLogs(ctx, folder)
	s.collectStatus(ctx, folder)
	s.collectNodes(ctx, folder)
	return folder + "\n" + brief(folder)
}

// brief is what each part of the driver said last of its state and of troubles, for who has nothing but the log.
func brief(folder string) string {
	const most, lines = 1500, 4
	var text strings.Builder
	files, _ := filepath.Glob(filepath.Join(folder, "*-*"))
	for _, file := range files {
		name := filepath.Base(file)
		content, err := os.ReadFile(file)
		var said string
		switch {
		case err != nil:
			continue
		case strings.HasPrefix(name, "status-"):
			said = string(content)
		case strings.HasPrefix(name, "log-"):
			troubles := trouble.FindAllString(string(content), -1)
			said = strings.Join(troubles[max(0, len(troubles)-lines):], "\n")
		}
		if said != "" {
			fmt.Fprintf(&text, "%s:\n%s\n", name, said[:min(len(said), most)])
		}
	}
	return text.String()
}

// trouble is a line of ours, or of klog.
var trouble = regexp.MustCompile(`(?m)^(\{.*"level":"(WARN|ERROR)"|[EW][0-9]{4} ).*$`)

func (s *suite) collectObjects(ctx context.Context, folder, namespaceOfTest string) {
	list := map[string][]string{
		"pods.txt":            {"get", "pods", "--all-namespaces", "--output", "wide"},
		"events.txt":          {"get", "events", "--all-namespaces", "--sort-by", ".metadata.creationTimestamp"},
		"nodes.txt":           {"describe", "nodes"},
		"driver-describe.txt": {"describe", "pods", "--namespace", namespace},
		"driver.yaml": {
			"get", "daemonsets,deployments,pods,configmaps,leases", "--namespace", namespace, "--output", "yaml",
		},
		"cluster-objects.yaml":   {"get", "csidrivers,csinodes,storageclasses", "--output", "yaml"},
		"resource.yaml":          {"get", "hostpathprovisioners,validatingwebhookconfigurations", "--output", "yaml"},
		"capacities.yaml":        {"get", "csistoragecapacities", "--all-namespaces", "--output", "yaml"},
		"persistentvolumes.yaml": {"get", "persistentvolumes", "--output", "yaml"},
		"claims.yaml":            {"get", "persistentvolumeclaims", "--all-namespaces", "--output", "yaml"},
	}
	if namespaceOfTest != "" {
		list["test-describe.txt"] = []string{"describe", "pods,persistentvolumeclaims", "--namespace", namespaceOfTest}
		list["test-pods.yaml"] = []string{"get", "pods", "--namespace", namespaceOfTest, "--output", "yaml"}
		list["test-logs.txt"] = []string{
			"logs", "--namespace", namespaceOfTest, "--selector", podLabel, "--all-containers", "--prefix", "--tail=-1",
		}
	}
	for file, args := range list {
		out, err := s.cluster.Kubectl(ctx, nil, args...)
		keep(folder, file, out, err)
	}
}

// collectLogs takes the logs of every container of the release's pods, and
// those from before its last restart.
func (s *suite) collectLogs(ctx context.Context, folder string) {
	const names = `jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.spec.containers[*].name}{"\n"}{end}`
	out, err := s.cluster.Kubectl(ctx, nil, "get", "pods", "--namespace", namespace, "--output", names)
	if err != nil {
		keep(folder, "logs.txt", out, err)
		return
	}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) < 3 {
			continue // not on a node yet
		}
		for _, container := range words[2:] {
			file := fmt.Sprintf("log-%s-%s-%s", words[1], words[0], container)
			args := []string{"logs", "--namespace", namespace, words[0], "--container", container, "--tail=5000"}
			log, err := s.cluster.Kubectl(ctx, nil, args...)
			keep(folder, file+".txt", log, err)
			// else it never restarted
			if log, err := s.cluster.Kubectl(ctx, nil, append(args, "--previous")...); err == nil {
				keep(folder, file+"-previous.txt", log, nil)
			}
		}
	}
}

// collectStatus takes what each driver says of its pools, and the controller of nodes and volumes.
func (s *suite) collectStatus(ctx context.Context, folder string) {
	if s.api == nil {
		return // no cluster came up
	}
	var pods corev1.PodList
	if err := s.api.List(ctx, &pods, resources.WithLabelSelector(componentLabel)); err != nil {
		keep(folder, "status.txt", "", err)
		return
	}
	for _, p := range pods.Items {
		commands := map[string][][]string{
			nodeComponent: {{"status"}}, controllerComponent: {{"status"}, {"volume", "list"}},
		}
		for _, command := range commands[p.Labels[componentLabel]] {
			out, err := s.cluster.Kubectl(ctx, nil, inPod(&p, command...)...)
			keep(folder, fmt.Sprintf("%s-%s-%s.txt", strings.Join(command, "-"), p.Spec.NodeName, p.Name), out, err)
		}
	}
}

// collectNodes takes from each node its mounts, what lies in the pools, what
// the driver remembers, and what the kubelet says.
func (s *suite) collectNodes(ctx context.Context, folder string) {
	var paths []string
	for _, p := range basePools() {
		paths = append(paths, p.Path)
	}
	script := strings.Join([]string{
		"echo '# findmnt'; findmnt",
		"echo; echo '# df'; df -B1 " + base,
		"echo; echo '# losetup'; losetup --list",
		"echo; echo '# pools'; ls -lad " + base + "/*; for p in " + strings.Join(paths, " ") + " " + base +
			"/*; do find $p/ -maxdepth 5 -ls | head -300; done",
		"echo; echo '# records'; for p in " + strings.Join(paths, " ") +
			"; do head -n 100 $p/csi/.hpp/pool.json $p/csi/.hpp/volumes/*.json; done",
		"echo; echo '# state'; find " + stateDir + " -ls; head -n 100 " + stateDir + "/pools/*",
		"echo; echo '# kubelet'; journalctl --unit kubelet --no-pager --lines 300",
	}, "\n")
	for _, node := range s.nodes {
		out, err := s.cluster.NodeExec(ctx, node, "sh", "-c", "{ "+script+"\n} 2>&1; true")
		keep(folder, "node-"+node+".txt", out, err)
	}
}

func keep(folder, file, text string, err error) {
	if err != nil {
		text += fmt.Sprintf("\n(could not be had: %v)\n", err)
	}
	if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: artifact:", err)
	}
}

// fileName makes a test's or step's name one that a folder can have.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' || r == ':' {
			return '_'
		}
		return r
	}, name)
}
