package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/process"
)

// buildPlugin builds kubectl-hpp as `make build` does.
func (s *suite) buildPlugin(ctx context.Context) error {
	s.pluginFile = filepath.Join(s.root, "bin", "kubectl-hpp")
	const version = "github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo.version"
	build := exec.CommandContext(ctx, "go", "build", "-o", s.pluginFile, "-ldflags", "-X "+version+"="+imageTag,
		"./src/kubectl-hpp")
	build.Dir = s.root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build kubectl-hpp: %w\n%s", err, out)
	}
	return nil
}

// hpp runs kubectl hpp as the cluster's admin about the feature's namespace, wants its exit code, and gives what it
// printed.
func (s *scene) hpp(code int, args ...string) string {
	s.t.Helper()
	command := exec.CommandContext(s.ctx, s.pluginFile, append(s.pluginFlags(), args...)...)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); command.ProcessState.ExitCode() != code {
		s.t.Fatalf("kubectl hpp %s: %v, want exit code %d\n%s%s", strings.Join(args, " "), err, code, &out, &problems)
	}
	return out.String()
}

// startHpp starts kubectl hpp, which ends with the feature at the latest.
func (s *scene) startHpp(args ...string) *process.Process {
	s.t.Helper()
	return process.Run(s.top, s.pluginFile, nil, append(s.pluginFlags(), args...)...)
}

// pluginFlags are those that a user's kubeconfig and the chart's defaults would save.
func (s *scene) pluginFlags() []string {
	return []string{
		"--kubeconfig", s.cluster.Kubeconfig(), "--namespace", s.namespace, "--driver-namespace", namespace,
	}
}

// TestPlugin: what the plugin says of a real cluster. Undelete, move, drain and migrate are in their own features.
func TestPlugin(t *testing.T) {
	node := world.workers[0]
	parallel(t, "kubectl hpp shows and explains volumes",
		step{"ItShowsAVolume", func(s *scene) {
			s.create(s.claim("data", classOf(poolLocal), "16Mi"))
			s.create(on(node, s.pod("user", claimed("data"), "sleep")))
			s.running("user")
			for _, args := range [][]string{{"get", "volumes"}, {"get", "volumes", "--node", node, "--state", "ok"}} {
				lines := strings.Split(strings.TrimSpace(s.hpp(0, args...)), "\n")
				if got := strings.Fields(lines[len(lines)-1]); len(lines) != 2 || strings.Join(got[:5], " ") !=
					"data user "+node+" "+poolLocal+" 16Mi" {
					s.t.Errorf("%q: %q", args, lines)
				}
			}
			if got := s.hpp(0, "get", "nodes"); !strings.Contains(got, node+" ") || !strings.Contains(got, imageTag) {
				s.t.Errorf("nodes:\n%s", got)
			}
			if got := s.hpp(0, "get", "pools", "--node", node); !strings.Contains(got, poolLocal) {
				s.t.Errorf("pools:\n%s", got)
			}
		}},
		step{"ItExplainsWhatIsWellAndWhatIsNot", func(s *scene) {
			if got := s.hpp(0, "explain", "pod/user"); !strings.Contains(got, "Bound and well: 16Mi in pool local") {
				s.t.Errorf("explained as:\n%s", got)
			}
			s.create(s.claim("huge", classOf(poolLocal), "900Ti"))
			s.create(s.pod("waits", claimed("huge"), "sleep"))
			s.eventually("the scheduler has looked at the pod", func() (bool, string) {
				got := s.kubectl("get", "events", "--namespace", s.namespace, "--field-selector",
					"involvedObject.name=waits,reason=FailedScheduling")
				return strings.Contains(got, "waits"), got
			})
			got := s.hpp(3, "explain", "pvc", "huge")
			if !strings.Contains(got, "it asks for 900Ti, and no node could ever have that in pool "+poolLocal) {
				s.t.Errorf("explained as:\n%s", got)
			}
		}},
		step{"ItMeasures", func(s *scene) {
			s.onNode(node, "head -c 3145728 /dev/zero > "+volumePath(poolLocal, s.bound("data").Name)+"/three")
			if got := s.hpp(0, "measure", "data"); !strings.Contains(got, "3.0Mi") && !strings.Contains(got, "3Mi") {
				s.t.Errorf("measured:\n%s", got)
			}
		}},
		step{"ItLooksAtAllOfIt", func(s *scene) {
			const page = "how-to/troubleshoot.md"
			report := filepath.Join(s.t.TempDir(), "report.html")
			const troubled = " || [ $? = 3 ]" // other features take pools away meanwhile
			names := []string{
				"CLAIM", "data", "NAMESPACE", s.namespace, "report.html", report,
				"kubectl hpp doctor", "kubectl hpp doctor" + troubled,
				"explain node NODE", "explain node " + node + troubled,
			}
			for text, want := range map[string]string{
				"explain pvc CLAIM":        "Bound and well",
				"kubectl hpp status":       imageTag + ", in namespace " + namespace,
				"kubectl hpp doctor":       node,
				"kubectl hpp report":       report,
				"kubectl hpp explain node": "pool " + poolLocal,
			} {
				got := s.typedLine(page, text, names...)
				if !strings.Contains(got, want) {
					s.t.Errorf("%s: no %q:\n%s", text, want, got)
				}
			}
			s.typedLine(page, "logs deployment/")
			if got := s.hpp(0, "explain", "pv", s.bound("data").Name); !strings.Contains(got, "Bound and well") {
				s.t.Errorf("explained as:\n%s", got)
			}
			if page, err := os.ReadFile(report); err != nil || !bytes.Contains(page, []byte(node)) {
				s.t.Errorf("the report has %d bytes, none of them name %s (%v)", len(page), node, err)
			}
		}},
		step{"WhatIsWrongIsRefused", func(s *scene) {
			s.hpp(2, "get", "volumes", "--state", "lsot")
			s.hpp(1, "move", "data", "--to", "nowhere")
			s.hpp(1, "discard", "pvc-nowhere", "--yes")
		}},
	)
}

// TestPluginIsInstalled types how the plugin is installed from a release's archive, on the node that has a kubectl.
func TestPluginIsInstalled(t *testing.T) {
	nightly(t)
	const page, folder = "how-to/install-kubectl-hpp.md", "/tmp/hpp-e2e-plugin"
	node := world.cluster.Name() + "-control-plane"
	archive := "kubectl-hpp_v0.1.0_linux_" + runtime.GOARCH + ".tar.gz"
	amd64 := []string{"kubectl-hpp_v0.1.0_linux_amd64.tar.gz", folder + "/" + archive}
	parallel(t, "kubectl finds the plugin of an archive, and completes its words",
		step{"FromTheArchive", func(s *scene) {
			s.bash("make plugin")
			s.whenDone(func(ctx context.Context) error {
				_, err := s.cluster.NodeExec(ctx, node, "rm", "-rf", folder, "/usr/local/bin/kubectl-hpp",
					"/usr/local/bin/kubectl_complete-hpp")
				return err
			})
			s.onNode(node, "mkdir -p "+folder)
			s.must(s.cluster.CopyToNode(s.ctx, node, filepath.Join(s.root, "artifacts", "plugin", archive), folder))
			if said := s.typedOnNode(node, page, "tar -xzf", amd64...); !strings.Contains(said, "0.1.0") {
				s.t.Errorf("its version is %s", said)
			}
		}},
		step{"ItAsksTheCluster", func(s *scene) {
			const admin = "export KUBECONFIG=/etc/kubernetes/admin.conf; "
			if said := s.onNode(node, admin+"kubectl hpp get nodes"); !strings.Contains(said, s.workers[0]) {
				s.t.Errorf("the nodes are %s", said)
			}
			s.typedOnNode(node, page, "kubectl_complete-hpp")
			if said := s.onNode(node, admin+"kubectl __complete hpp get ''"); !strings.Contains(said, "volumes") {
				s.t.Errorf("completed are %s", said)
			}
		}},
	)
}
