package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDiskIsReplacedByACopy types how a pool gets a disk, and how its data goes to another one: on btrfs, where that
// takes the most steps. Quota is off: Debian's btrfs-progs cannot switch simple quota on.
func TestDiskIsReplacedByACopy(t *testing.T) {
	nightly(t)
	const page, newDisk, newMount = "how-to/replace-a-disk.md", poolSwapped + "-new", disks + "/new"
	node, path, class := world.workers[0], pathOf(poolSwapped), classOf(poolSwapped)
	var volume, sum string
	parallel(t, "a disk is copied to another, which then takes its place",
		step{"ADiskIsMountedAsThePageSays", func(s *scene) {
			s.mountByFstab(node, poolSwapped, path)
			s.present(node, poolSwapped)
			s.create(s.claim("data", class, "16Mi"))
			sum = firstWord(s.output(on(node, s.pod("data", claimed("data"), writeData()...))))
			volume = s.bound("data").Name
			s.deletePod("data")
		}},
		step{"ItIsCopied", func(s *scene) {
			s.mountBtrfs(node, newDisk, "1G", newMount)
			names := []string{
				"/mnt/ssd", path, "/mnt/new", newMount, "btrfs quota", "true btrfs quota",
				"btrfs subvolume", s.bring(node, "btrfs") + " subvolume", "rsync", s.bring(node, "rsync"),
			}
			for _, command := range []string{"btrfs subvolume create", "rsync"} {
				s.typedOnNode(node, page, command, names...)
			}
		}},
		step{"TheCopyTakesItsPlace", func(s *scene) {
			s.unmountDisk(node, newMount)
			s.unmountDisk(node, path)
			s.remountDisk(node, newDisk, path)
			s.present(node, poolSwapped)
			s.output(on(node, s.pod("data", claimed("data"), checkData(sum)...)))
			s.create(s.claim("new", class, "16Mi"))
			s.output(on(node, s.pod("new", claimed("new"), writeData()...)))
		}},
		step{"ItsVolumesAreDeletedThere", func(s *scene) {
			s.forget("data")
			s.vanishes(node, volumePath(poolSwapped, volume))
			s.forget("new")
		}},
	)
}

// mountByFstab makes a btrfs filesystem, and types how it is mounted at a path on a node, until the feature is over.
func (s *scene) mountByFstab(node, name, path string) {
	s.t.Helper()
	const page = "how-to/use-a-disk.md"
	s.must(s.cluster.CopyBtrfs(s.ctx, node, diskImage(name), "1G"))
	line := printed(s.t, strings.Split(s.fenced(page, "")[0], "\n"), page, "btrfs",
		[]string{"UUID=…", diskImage(name), "/mnt/ssd", path})
	s.whenDone(func(ctx context.Context) error {
		_, err := s.cluster.NodeExec(ctx, node, "sh", "-ec", unmounted(path)+"rm -f "+diskImage(name)+
			"; sed -i '\\#"+path+"#d' /etc/fstab")
		return err
	})
	s.onNode(node, "echo '"+line+"' >>/etc/fstab")
	if found := s.typedOnNode(node, page, "findmnt", "/mnt/ssd", path); !strings.Contains(found, "btrfs") {
		s.t.Errorf("mounted is %s", found)
	}
}

// bring puts a program of this machine onto a node that does not have it, with its libraries, and gives the words that
// run it there.
func (s *scene) bring(node, program string) string {
	s.t.Helper()
	file, err := exec.LookPath(program)
	s.must(err)
	linked, err := exec.CommandContext(s.ctx, "ldd", file).Output()
	s.must(err)
	folder := filepath.Join(s.t.TempDir(), "hpp-e2e-"+program)
	copied, loader := []string{"-Lt", folder, file}, ""
	for word := range strings.FieldsSeq(string(linked)) {
		if filepath.IsAbs(word) {
			copied = append(copied, word)
		}
		if strings.Contains(word, "/ld-linux") {
			loader = filepath.Base(word)
		}
	}
	for _, command := range []*exec.Cmd{
		exec.CommandContext(s.ctx, "mkdir", folder), exec.CommandContext(s.ctx, "cp", copied...),
	} {
		out, err := command.CombinedOutput()
		if err != nil {
			s.t.Fatalf("%v: %v: %s", command.Args, err, out)
		}
	}
	s.must(s.cluster.CopyToNode(s.ctx, node, folder, disks)) // nothing in /tmp can be run there
	on := disks + "/" + filepath.Base(folder)
	return on + "/" + loader + " --library-path " + on + " " + on + "/" + program
}
