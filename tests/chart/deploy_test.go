package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// manifest is a file of deploy/.
func manifest(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(helmcli.Root(t), "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestDeployIsWhatTheChartRenders: each generated file is as the generator would write it now.
func TestDeployIsWhatTheChartRenders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), "go", "run", "./deploy", "-helm",
		helmcli.Tool(t, "helm", "v4.3.1"), "-out", dir)
	command.Dir = filepath.Join(helmcli.Root(t), "tools")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
		fresh, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(manifest(t, entry.Name()), string(fresh)); diff != "" {
			t.Errorf("deploy/%s is not what the chart renders, run `make generate` (-deploy +chart):\n%s", entry.Name(),
				diff)
		}
	}
	want := []string{
		"crd.yaml", "every-node-provisioner.yaml", "images.txt", "network-filesystem-provisioner.yaml", "operator.yaml",
		"storageclass-every-node.yaml", "storageclass-immediate.yaml", "storageclass-network-filesystem.yaml",
		"storageclass-wffc-csi.yaml", "storageclass-wffc-legacy-csi.yaml", "storageclass-wffc.yaml", "webhook.yaml",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("generated files (-want +got):\n%s", diff)
	}
}

// TestDeployInAnotherNamespace: the sed of docs/how-to/operator.md gives what the chart renders for that namespace.
func TestDeployInAnotherNamespace(t *testing.T) {
	t.Parallel()
	const old = "hostpath-provisioner"
	for _, file := range []string{"operator.yaml", "webhook.yaml"} {
		for number, line := range strings.Split(manifest(t, file), "\n") {
			moved := strings.Replace(line, "namespace: "+old, "namespace: storage", 1)
			if strings.Contains(strings.ToLower(line), "namespace") && strings.Contains(line, old) && moved == line {
				t.Errorf("deploy/%s:%d: the sed of docs/how-to/operator.md misses %q", file, number+1, line)
			}
		}
	}
	text := strings.ReplaceAll(manifest(t, "operator.yaml")+"---\n"+manifest(t, "webhook.yaml"), "namespace: "+old+"\n",
		"namespace: storage\n")
	got := helmcli.Ids(helmcli.Raw(t, text))
	values := withOperator(helmcli.Values{NoHooks: true}, nil)
	want := helmcli.Ids(helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values)))
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
		t.Errorf("objects in the namespace storage (-chart +deploy):\n%s", diff)
	}
}

// TestDeployHasNoNameOfKubevirts: where its operator is there, `kubectl apply` would change its objects, and fail on
// the selector of its Deployment.
func TestDeployHasNoNameOfKubevirts(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"operator.yaml", "webhook.yaml"} {
		for _, object := range helmcli.Raw(t, manifest(t, file)) {
			if slices.Contains([]string{
				"hostpath-provisioner-operator", "hostpath-provisioner-operator-webhook-service",
				"hostpathprovisioner.kubevirt.io",
			}, object.GetName()) {
				t.Errorf("%s of deploy/%s has the name of kubevirt's, %s",
					object.GetObjectKind().GroupVersionKind().Kind, file, object.GetName())
			}
		}
	}
}

// TestDeployCarriesTheDefinition that the operator applies, word for word.
func TestDeployCarriesTheDefinition(t *testing.T) {
	t.Parallel()
	definition, err := os.ReadFile(filepath.Join(helmcli.ChartDir(t), "files", "crd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(manifest(t, "crd.yaml"), strings.Trim(string(definition), "-\n")) {
		t.Error("deploy/crd.yaml does not hold files/crd.yaml")
	}
}

// TestSamples: each resource is one that its type knows, and the class beside it asks for a pool that it has.
func TestSamples(t *testing.T) {
	t.Parallel()
	for file, class := range map[string]string{
		"hostpathprovisioner_cr.yaml":             "storageclass-wffc-csi.yaml",
		"hostpathprovisioner_legacy_cr.yaml":      "storageclass-wffc-legacy-csi.yaml",
		"hostpathprovisioner_pvctemplate_cr.yaml": "storageclass-wffc-csi.yaml",
	} {
		var resource v1beta1.HostPathProvisioner
		if err := yaml.UnmarshalStrict([]byte(manifest(t, file)), &resource); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var pools []string
		for _, pool := range resource.Spec.StoragePools {
			pools = append(pools, pool.Name)
		}
		if resource.Spec.PathConfig != nil {
			pools = append(pools, "legacy")
		}
		wanted := sample(t, class)
		if resource.Name != "hostpath-provisioner" || !slices.Contains(pools, wanted.Parameters["storagePool"]) {
			t.Errorf("%s is called %s and has the pools %v; %s wants %q",
				file, resource.Name, pools, class, wanted.Parameters["storagePool"])
		}
	}
	for file, binding := range map[string]storagev1.VolumeBindingMode{
		"storageclass-wffc.yaml":      storagev1.VolumeBindingWaitForFirstConsumer,
		"storageclass-immediate.yaml": storagev1.VolumeBindingImmediate,
	} {
		class := sample(t, file)
		if class.Provisioner != "kubevirt.io/hostpath-provisioner" || *class.VolumeBindingMode != binding ||
			len(class.Labels) > 0 {
			t.Errorf(
				"%s: provisioner %s, binding %s, labels %v", file, class.Provisioner, *class.VolumeBindingMode,
				class.Labels,
			)
		}
	}
}

// TestSharedManifests: one Deployment with its rights, and a class with a directory that its pods see.
func TestSharedManifests(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, manifest(t, "network-filesystem-provisioner.yaml"))
	want := []string{
		"ClusterRole /hpp-hostpath-provisioner-shared", "ClusterRoleBinding /hpp-hostpath-provisioner-shared",
		"Deployment hostpath-provisioner/" + networkFSPlain,
		"Role hostpath-provisioner/hpp-hostpath-provisioner-shared",
		"RoleBinding hostpath-provisioner/hpp-hostpath-provisioner-shared",
		"ServiceAccount hostpath-provisioner/hpp-hostpath-provisioner-shared",
	}
	if diff := cmp.Diff(want, sorted(helmcli.Ids(objects))); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	spec := helmcli.Find[*appsv1.Deployment](t, objects, networkFSPlain).Spec.Template.Spec
	class := sample(t, "storageclass-network-filesystem.yaml")
	if c := container(t, spec, "provisioner"); class.Parameters["pvDir"] != "/ceph/pvs" ||
		c.VolumeMounts[0].MountPath != "/ceph" || !slices.Contains(c.Args, "--name="+class.Provisioner) {
		t.Errorf("class %+v, mounts %+v, arguments %v", class, c.VolumeMounts, c.Args)
	}
}

// TestEveryNodeManifests: provisioner, managers, their Service and rights, and a class of kubeboost's.
func TestEveryNodeManifests(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, manifest(t, "every-node-provisioner.yaml"))
	if diff := cmp.Diff(everyNodeObjects("hostpath-provisioner"), sorted(helmcli.Ids(objects))); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	spec := helmcli.Find[*appsv1.Deployment](t, objects, everyNodePlain).Spec.Template.Spec
	class := sample(t, "storageclass-every-node.yaml")
	if c := container(t, spec, "provisioner"); !slices.Contains(c.Args, "--name="+class.Provisioner) {
		t.Errorf("class %+v, arguments %v", class, c.Args)
	}
}

func sample(t *testing.T, file string) *storagev1.StorageClass {
	t.Helper()
	objects := helmcli.Objects(t, manifest(t, file))
	if len(objects) != 1 {
		t.Fatalf("%s holds %d objects, want one", file, len(objects))
	}
	class, ok := objects[0].(*storagev1.StorageClass)
	if !ok {
		t.Fatalf("%s holds a %T", file, objects[0])
	}
	return class
}
