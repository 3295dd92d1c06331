package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTutorial types what docs/tutorial/first-volume.md prints, once its cluster is there.
func TestTutorial(t *testing.T) {
	parallel(t, "the tutorial's commands do what it says",
		step{"AsPrinted", func(s *scene) {
			node, volume := "", ""
			for _, block := range s.blocks("tutorial/first-volume.md") {
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
	)
}

// blocks are the shell commands of a page, for the class, the image and the pool of this run.
func (s *scene) blocks(page string) (all []string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.root, "docs", page))
	s.must(err)
	image := regexp.MustCompile(`image: \S+/selftest:\S+`)
	ours := strings.NewReplacer("hostpath-local", classOf(poolLocal), "/var/lib/hostpath-provisioner",
		pathOf(poolLocal))
	for _, found := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		all = append(all, image.ReplaceAllString(ours.Replace(found[1]), "image: "+s.image("selftest")))
	}
	if len(all) < 5 {
		s.t.Fatalf("%s has %d blocks of commands", page, len(all))
	}
	return all
}

// bash runs commands as a user would who is in the feature's namespace, and returns what they print.
func (s *scene) bash(commands string) string {
	s.t.Helper()
	kubectl := "kubectl() { docker exec -i " + s.cluster.Name() + "-control-plane kubectl " +
		"--kubeconfig /etc/kubernetes/admin.conf --namespace " + s.namespace + ` "$@"; }`
	command := exec.CommandContext(s.ctx, "bash", "-euo", "pipefail", "-c", kubectl+"\n"+commands)
	out, err := command.CombinedOutput()
	s.t.Logf("$ %s%s", commands, out)
	s.must(err)
	return string(out)
}
