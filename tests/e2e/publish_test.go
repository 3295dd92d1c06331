package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

// published are a release's images and chart in the cluster's registry, and a volume that a pod appends to.
type published struct {
	node, address, version string
	values                 string // README's, in a file
	writer                 *corev1.Pod
	volume, lines          string
}

// TestRelease publishes images and chart in the cluster's registry, by the steps of .github's release.yaml, and
// installs them as README and the operator's page say.
func TestRelease(t *testing.T) {
	nightly(t)
	r := &published{node: world.workers[0]}
	replacing(t, "README's and the operator's pages install what a release publishes",
		step{"ImagesAndChartArePublished", func(s *scene) {
			var err error
			r.address, err = s.cluster.Registry(s.ctx)
			s.must(err)
			r.version = s.publish(r.address)
		}},
		step{"InstalledAsREADMESays", func(s *scene) { r.install(s) }},
		step{"OperatorOnAndOff", func(s *scene) { r.onAndOff(s) }},
		step{"OperatorWithHelm", func(s *scene) {
			s.must(s.bare(s.ctx))
			s.kubectl("delete", "namespace", namespace)
			s.typed(operatorPage, "kubectl wait", r.fromRegistry("--set ")...)
			r.runs(s, "operator", "controller", "driver")
			s.must(s.withoutResource(s.ctx))
			s.must(s.uninstall(s.ctx))
		}},
		step{"OperatorWithoutHelm", func(s *scene) { r.manifests(s) }},
		step{"OperatorInAnotherNamespaceUntilItIsRemovedByHand", func(s *scene) { r.elsewhere(s) }},
		step{"AsBefore", func(s *scene) {
			s.restoreRelease(readmePool)
			s.forget("elsewhere")
		}},
	)
}

const (
	readmePool   = "ssd"
	operatorPage = "how-to/operator.md"
)

// fromRegistry makes a page's chart the published one, and says before an option that its registry has no TLS.
func (r *published) fromRegistry(option string) []string {
	return []string{
		"charts/", "oci://" + r.address + "/hostpath-provisioner/charts/", option, "--plain-http " + option,
		"values.yaml", r.values,
	}
}

// runs wants pods of these images of the release.
func (r *published) runs(s *scene, names ...string) {
	s.t.Helper()
	images := s.kubectl("get", "pods", "--namespace", namespace, "--output", "jsonpath={..image}")
	for _, name := range names {
		if image := product.Repository + "/" + name + ":" + r.version; !strings.Contains(images, image) {
			s.t.Errorf("no pod runs %s: %s", image, images)
		}
	}
}

// install types README's commands, from the namespace to the first volume.
func (r *published) install(s *scene) {
	s.whenDone(func(ctx context.Context) error { return s.install(ctx, s.values("info")) })
	s.mountBtrfs(r.node, readmePool, "4G", "/mnt/ssd") // the volume is to have 1Gi
	s.must(s.bare(s.ctx))
	s.kubectl("delete", "namespace", namespace, "--ignore-not-found")
	r.values = filepath.Join(s.artifacts, "readme-values.yaml")
	s.must(os.WriteFile(r.values, []byte(s.fenced("../README.md", "yaml")[0]), 0o600))
	s.typed("../README.md", "helm install", r.fromRegistry("--values ")...)
	r.runs(s, "controller", "driver")
	r.volume = s.firstVolume().Name
	r.lines = "/mnt/ssd/csi/" + r.volume + "/lines"
	s.existsOnlyOn(r.node, r.lines)
	r.writer = s.running("writer")
}

// onAndOff types how a live release gets an operator, and is without one again.
func (r *published) onAndOff(s *scene) {
	resource := filepath.Join(s.t.TempDir(), "hostpathprovisioner.yaml")
	s.must(os.WriteFile(resource, []byte(`apiVersion: hostpathprovisioner.kubevirt.io/v1beta1
kind: HostPathProvisioner
metadata: {name: hostpath-provisioner}
spec:
  storagePools: [{name: ssd, path: /mnt/ssd, requireMount: true, quota: required}]
`), 0o600))
	s.typed(operatorPage, "# off", append(r.fromRegistry("--set "),
		"-f hostpathprovisioner.yaml", "-f - < "+resource,
		"# off", "kubectl wait hostpathprovisioners/hostpath-provisioner --for=condition=Available --timeout=5m\n# off",
	)...)
	s.untouched(r.writer)
	s.grows(r.node, r.lines)
	s.deletePod("writer")
	s.remove(s.claim("data", "", "0"))
	s.gone(r.volume)
	s.vanishes(r.node, r.lines)
}

// manifests types how the operator is installed from deploy/.
func (r *published) manifests(s *scene) {
	s.kubectl("delete", "namespace", namespace)
	controlPlane := s.cluster.Name() + "-control-plane"
	s.must(s.cluster.CopyToNode(s.ctx, controlPlane, filepath.Join(s.root, "deploy"), "/tmp"))
	// Its pool is named as this suite's, and lies elsewhere: nodes would rightly refuse it.
	s.onNode(controlPlane, "sed -i 's#"+seedPath+"#"+pathOf(poolLocal)+"#' /tmp/deploy/hostpathprovisioner_cr.yaml")
	remove := func(ctx context.Context) error {
		err := s.withoutResource(ctx)
		_, deleteErr := s.cluster.Kubectl(ctx, nil, "delete", "--ignore-not-found",
			"--filename", "/tmp/deploy/operator.yaml", "--filename", "/tmp/deploy/webhook.yaml",
			"--filename", "/tmp/deploy/storageclass-wffc-csi.yaml")
		return errors.Join(err, deleteErr)
	}
	s.whenDone(func(ctx context.Context) error {
		if s.top.Failed() {
			return remove(ctx)
		}
		return nil
	})
	s.typed(operatorPage, "deploy/namespace.yaml", "deploy/", "/tmp/deploy/",
		"kubectl apply", "kubectl apply --namespace "+namespace) // a user is in none
	s.kubectl("wait", "hostpathprovisioners/"+customResource, "--for=condition=Available", "--timeout=5m")
	r.runs(s, "operator", "controller", "driver")
	s.create(s.claim("manifests", seedClass, "16Mi"))
	s.output(s.pod("manifests", claimed("manifests"), writeData()...))
	pv := s.bound("manifests")
	s.existsOnlyOn(s.nodeOf(pv), volumePath(poolLocal, pv.Name)+"/file")
	s.forget("manifests")
	s.must(remove(s.ctx))
}

// elsewhere types how the operator gets another namespace, and how what it made goes without it.
func (r *published) elsewhere(s *scene) {
	s.whenDone(s.letKubevirtsResourceGo) // where the step ends before it does
	folder := filepath.Join(s.t.TempDir(), "elsewhere")
	s.typed(operatorPage, "mkdir elsewhere", "elsewhere", folder)
	for _, name := range []string{"namespace", "operator", "webhook"} {
		text, err := os.ReadFile(filepath.Join(folder, name+".yaml"))
		s.must(err)
		s.removeWhenDone(string(text))
		s.apply(string(text))
	}
	s.kubectl("rollout", "status", "deployment/"+fullName+"-operator", "--namespace", "storage", "--timeout", "5m")
	s.deleteWhenDone("storageclass", seedClass)
	s.kubectl("apply", "--filename", "/tmp/deploy/hostpathprovisioner_cr.yaml", "--filename",
		"/tmp/deploy/storageclass-wffc-csi.yaml")
	s.kubectl("wait", "hostpathprovisioners/"+customResource, "--for=condition=Available", "--timeout=5m")
	s.create(s.claim("elsewhere", seedClass, "16Mi"))
	s.output(s.pod("elsewhere", claimed("elsewhere"), writeData()...))
	pv := s.bound("elsewhere")
	s.kubectl("delete", "deployment", fullName+"-operator", "--namespace", "storage", "--cascade=foreground")
	s.typed(operatorPage, `"finalizers":null`)
	s.nothingIsOwned()
	s.noPodsOf(nodeComponent)
	s.noPodsOf(controllerComponent)
	s.existsOnlyOn(s.nodeOf(pv), volumePath(poolLocal, pv.Name)+"/file")
}

// publish does what release.yaml does with the images and the chart, for another registry, and returns their version.
func (s *scene) publish(address string) (version string) {
	s.t.Helper()
	chart, err := os.ReadFile(filepath.Join(s.root, chartFolder, "Chart.yaml"))
	s.must(err)
	var is struct{ Version string }
	s.must(yaml.Unmarshal(chart, &is))
	dir := s.t.TempDir()
	commands := fmt.Sprintf("export HELM=%s HELM_REGISTRY_CONFIG=%s/login GITHUB_ENV=%[2]s/env GITHUB_REF_NAME=v%s "+
		"REGISTRY=%s/hostpath-provisioner GITHUB_ACTOR=e2e PASSWORD=any\n", s.helm, dir, is.Version, address)
	commands += s.releaseStep("The tag is the version of chart and app") + `. "$GITHUB_ENV"` + "\n"
	s.bash(commands + strings.NewReplacer("published.txt", dir+"/published.txt", "push.txt", dir+"/push.txt",
		"login ghcr.io", "login --plain-http "+address, "logout ghcr.io", "logout "+address,
		`"$HELM" package `, `"$HELM" package --destination `+dir+" ",
		`"$HELM" push "`, `"$HELM" push --plain-http "`+dir+"/",
	).Replace(s.releaseStep("Images")+s.releaseStep("Chart")))
	published, err := os.ReadFile(filepath.Join(dir, "published.txt"))
	s.must(err)
	for _, name := range append(product.Names(), "charts/hostpath-provisioner") {
		if !strings.Contains(string(published), address+"/hostpath-provisioner/"+name+":"+is.Version+"@sha256:") {
			s.t.Errorf("%s was not published:\n%s", name, published)
		}
	}
	return is.Version
}

// releaseStep is what a step of release.yaml runs.
func (s *scene) releaseStep(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.root, ".github", "workflows", "release.yaml"))
	s.must(err)
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct{ Name, Run string }
		}
	}
	s.must(yaml.Unmarshal(text, &workflow))
	for _, step := range workflow.Jobs["publish"].Steps {
		if step.Name == name {
			return step.Run
		}
	}
	s.t.Fatalf("release.yaml has no step %q", name)
	return ""
}
