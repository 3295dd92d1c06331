package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestTutorial types what docs/tutorial/first-volume.md prints, once its cluster is there, and README's first volume.
func TestTutorial(t *testing.T) {
	parallel(t, "the tutorial's commands do what it says",
		step{"AsPrinted", func(s *scene) {
			node, volume := "", ""
			blocks := s.blocks("tutorial/first-volume.md")
			if len(blocks) < 5 {
				s.t.Fatalf("there are %d blocks of commands", len(blocks))
			}
			for _, block := range blocks {
				switch {
				case strings.Contains(block, "make up"), strings.HasPrefix(block, "kubectl()"):
					continue // this run has a cluster, and a kubectl of its own
				case strings.Contains(block, "delete pod/writer"):
					s.existsOnlyOn(node, volumePath(poolLocal, volume)+"/lines")
				}
				out := s.bash(strings.ReplaceAll(block, "NODE", node))
				if strings.Contains(block, "get pv ") {
					volume, node, _ = strings.Cut(strings.TrimSpace(out), " on ")
				}
			}
			s.gone(volume)
			s.vanishes(node, volumePath(poolLocal, volume))
		}},
		step{"FirstVolumeOfREADME", func(s *scene) {
			pv := s.firstVolume("fast", classOf(poolLocal))
			s.existsOnlyOn(s.nodeOf(pv), volumePath(poolLocal, pv.Name)+"/lines")
		}},
	)
}

// firstVolume types README's first volume, of the class that it names or of another in its place.
func (s *scene) firstVolume(class ...string) *corev1.PersistentVolume {
	s.t.Helper()
	s.typed("../README.md", "kubectl logs writer", append(class, "busybox", s.image("selftest"),
		"command: [sh, -c, \"date >> /data/dates; cat /data/dates; sleep infinity\"]",
		"args: [append-loop, /data/lines]")...)
	return s.bound("data")
}

// TestEphemeralVolume applies the pod that docs/how-to/ephemeral-volumes.md prints.
func TestEphemeralVolume(t *testing.T) {
	parallel(t, "a generic ephemeral volume comes and goes with its pod",
		step{"ComesWithThePod", func(s *scene) {
			pod := strings.NewReplacer("busybox", s.image("selftest"),
				`command: [sh, -c, "dd if=/dev/zero of=/scratch/file bs=1M count=100 && sleep 600"]`,
				"args: [append-loop, /scratch/lines]").Replace(s.fenced("how-to/ephemeral-volumes.md", "yaml")[0])
			s.bash("kubectl apply -f - <<EOF\n" + pod + "EOF\n")
			s.running("build")
		}},
		step{"GoesWithIt", func(s *scene) {
			pv := s.bound("build-scratch")
			s.existsOnlyOn(s.nodeOf(pv), volumePath(poolLocal, pv.Name)+"/lines")
			s.deletePod("build")
			s.gone(pv.Name)
			s.vanishes(s.nodeOf(pv), volumePath(poolLocal, pv.Name))
		}},
	)
}

// blocks are the shell commands of a page, for the class, the image and the pool of this run.
func (s *scene) blocks(page string) []string { return s.fenced(page, "sh") }

// fenced are the blocks of a page in a language.
func (s *scene) fenced(page, language string) (all []string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.root, "docs", page))
	s.must(err)
	image := regexp.MustCompile(`image: \S+/selftest:\S+`)
	ours := strings.NewReplacer("hostpath-local", classOf(poolLocal), "/var/lib/hostpath-provisioner",
		pathOf(poolLocal))
	fenced := regexp.MustCompile("(?ms)^( *)```" + language + "\n(.*?)^ *```$")
	for _, found := range fenced.FindAllStringSubmatch(string(text), -1) {
		block := strings.TrimPrefix(strings.ReplaceAll("\n"+found[2], "\n"+found[1], "\n"), "\n")
		all = append(all, image.ReplaceAllString(ours.Replace(block), "image: "+s.image("selftest")))
	}
	return all
}

// typed types the block of commands of a page that has a text in it, with these names in place of the page's.
func (s *scene) typed(page, text string, names ...string) string {
	s.t.Helper()
	return s.typedOf(s.blocks(page), page, text, names)
}

// typedLine types the first line only that has the text, of the commands of a page.
func (s *scene) typedLine(page, text string, names ...string) string {
	s.t.Helper()
	return s.typedOf(strings.Split(strings.Join(s.blocks(page), ""), "\n"), page, text, names)
}

// typedOnNode types such a block as root on a node.
func (s *scene) typedOnNode(node, page, text string, names ...string) string {
	s.t.Helper()
	commands := printed(s.t, s.blocks(page), page, text, names)
	out := s.onNode(node, commands)
	s.t.Logf("%s# %s%s", node, commands, out)
	return out
}

func (s *scene) typedOf(commands []string, page, text string, names []string) string {
	s.t.Helper()
	return s.bash(printed(s.t, commands, page, text, names))
}

// printed is the first of a page's commands that has a text in it, with these names in place of the page's.
func printed(t testing.TB, commands []string, page, text string, names []string) string {
	t.Helper()
	i := slices.IndexFunc(commands, func(command string) bool { return strings.Contains(command, text) })
	if i < 0 {
		t.Fatalf("%s has no command with %q", page, text)
	}
	return strings.NewReplacer(names...).Replace(commands[i])
}

// bash runs commands as a user would who is in the feature's namespace, and returns what they print.
func (s *scene) bash(commands string) string {
	s.t.Helper()
	functions := fmt.Sprintf(`helm() { KUBECONFIG=%[1]s %[2]s "$@"; }
kubectl() {
	case $1 in
	hpp) shift; %[3]s %[4]s "$@" ;;
	--kubeconfig) [ "$2" = %[1]s ]; shift 2; kubectl "$@" ;;
	*) docker exec -i %[5]s-control-plane kubectl --kubeconfig /etc/kubernetes/admin.conf --namespace %[6]s "$@" ;;
	esac
}
`, s.cluster.Kubeconfig(), s.helm, s.pluginFile, strings.Join(s.pluginFlags(), " "), s.cluster.Name(), s.namespace)
	command := exec.CommandContext(s.ctx, "bash", "-euo", "pipefail", "-c", functions+commands)
	command.Dir = s.root
	out, err := command.CombinedOutput()
	s.t.Logf("$ %s%s", commands, out)
	s.must(err)
	return string(out)
}
