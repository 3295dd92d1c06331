package chart

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	securityv1 "github.com/openshift/api/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// networkFSInstances are those of one user of torchbox's, who has a class already.
const networkFSInstances = `[{"name":"torchbox.com/hostpath","path":"/ceph"}]`

// networkFSValues enables the provisioners for network filesystems with their defaults, and with every value
// that they have.
func networkFSValues() (plain, full helmcli.Values) {
	return helmcli.Values{JSON: map[string]string{
		"legacyProvisioner.shared.enabled": "true", "legacyProvisioner.shared.instances": networkFSInstances,
	}}, helmcli.Values{Files: []string{"testdata/networkfs.yaml"}}
}

// The names of an instance's objects: with the defaults, and in testdata/networkfs.yaml.
const (
	networkFSPlain = "hpp-hostpath-provisioner-shared-torchbox-com-hostpath"
	networkFSFull  = "storage-driver-shared-torchbox-com-hostpath"
	networkFSOther = "storage-driver-shared-example-com-big-nfs"
)

// TestNetworkFSRenderings: with each Helm the same, twice; beside the driver and never instead of it.
func TestNetworkFSRenderings(t *testing.T) {
	t.Parallel()
	plain, full := networkFSValues()
	addsOnly(t, plain, full,
		"ClusterRole /hpp-hostpath-provisioner-shared", "ClusterRoleBinding /hpp-hostpath-provisioner-shared",
		"Deployment storage/"+networkFSPlain, "Role storage/hpp-hostpath-provisioner-shared",
		"RoleBinding storage/hpp-hostpath-provisioner-shared", "ServiceAccount storage/hpp-hostpath-provisioner-shared")
}

// TestNetworkFSIsLeftToTheOperator, which renders it from the same values.
func TestNetworkFSIsLeftToTheOperator(t *testing.T) {
	t.Parallel()
	_, full := networkFSValues()
	leftToTheOperator(t, full, "shared")
}

// TestNetworkFSPod sees the storage at its own path, what is mounted there later, and what is mounted on the node.
func TestNetworkFSPod(t *testing.T) {
	t.Parallel()
	plain, _ := networkFSValues()
	deployment := helmcli.Find[*appsv1.Deployment](t, legacyObjects(t, plain), networkFSPlain)
	spec := deployment.Spec.Template.Spec
	c := container(t, spec, "provisioner")
	want := []string{
		"--mode=shared", "--name=torchbox.com/hostpath", "--path=/ceph", "--host-mounts=/host/mountinfo",
		"--http-address=:9896",
		"--log-level=info", "--log-format=json",
	}
	if diff := cmp.Diff(want, c.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	propagation, directory, file := corev1.MountPropagationHostToContainer, corev1.HostPathDirectory,
		corev1.HostPathFile
	mounts := []corev1.VolumeMount{
		{Name: "storage", MountPath: "/ceph", MountPropagation: &propagation},
		{Name: "mountinfo", MountPath: "/host/mountinfo", ReadOnly: true},
	}
	if diff := cmp.Diff(mounts, c.VolumeMounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	host := func(name, path string, is *corev1.HostPathType) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: path, Type: is},
		}}
	}
	volumes := []corev1.Volume{
		host("storage", "/ceph", &directory), host("mountinfo", "/proc/1/mountinfo", &file),
	}
	if diff := cmp.Diff(volumes, spec.Volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	if got := c.LivenessProbe.HTTPGet.Path + " " + c.ReadinessProbe.HTTPGet.Path; got != "/healthz /readyz" {
		t.Errorf("probes %s", got)
	}
	if *deployment.Spec.Replicas != 1 {
		t.Errorf("%d replicas", *deployment.Spec.Replicas)
	}
}

// TestNetworkFSPodHasNoPrivileges: root with the two rights over files that deleting other people's needs.
func TestNetworkFSPodHasNoPrivileges(t *testing.T) {
	t.Parallel()
	plain, _ := networkFSValues()
	spec := helmcli.Find[*appsv1.Deployment](t, legacyObjects(t, plain), networkFSPlain).Spec.Template.Spec
	rootWithoutPrivileges(t, spec, "provisioner")
}

// TestEveryNetworkFSValueReachesThePod: each value of testdata/networkfs.yaml is somewhere.
func TestEveryNetworkFSValueReachesThePod(t *testing.T) {
	t.Parallel()
	_, full := networkFSValues()
	objects := legacyObjects(t, full)
	deployment := helmcli.Find[*appsv1.Deployment](t, objects, networkFSFull)
	account := helmcli.Find[*corev1.ServiceAccount](t, objects, "shared-account")
	spec, meta := deployment.Spec.Template.Spec, deployment.Spec.Template.ObjectMeta
	c := container(t, spec, "provisioner")
	got := map[string]string{
		"account": spec.ServiceAccountName, "account annotation": account.Annotations["example.com/account"],
		"image": c.Image, "pull policy": string(c.ImagePullPolicy),
		"pull secret": spec.ImagePullSecrets[0].Name, "priority": spec.PriorityClassName,
		"toleration": spec.Tolerations[0].Key, "node": spec.NodeSelector["storage"],
		"affinity":   affinityKey(spec.Affinity),
		"annotation": meta.Annotations["example.com/pod"], "label": meta.Labels["example.com/pod"],
		"scc":    meta.Annotations["openshift.io/required-scc"],
		"memory": c.Resources.Limits.Memory().String(), "arguments": strings.Join(c.Args[1:], " "),
		"extra": c.Env[0].Name,
	}
	want := map[string]string{
		"account": "shared-account", "account annotation": "annotation",
		"image":       "mirror.example.com/hub/hostpath-provisioner/legacy:1",
		"pull policy": "Always", "pull secret": "pull-secret", "priority": "important", "toleration": "dedicated",
		"node": "yes", "affinity": "virtual", "annotation": "annotation", "label": "label",
		"scc": "storage-driver-shared", "memory": "128Mi", "extra": "GOMEMLIMIT",
		"arguments": "--name=torchbox.com/hostpath --path=/ceph --host-mounts=/host/mountinfo --http-address=:19896 " +
			"--log-level=debug --log-format=text --log-level=warn",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
	if c.Ports[0].ContainerPort != 19896 || *deployment.Spec.Replicas != 2 {
		t.Errorf("port %d, %d replicas, want 19896 and 2", c.Ports[0].ContainerPort, *deployment.Spec.Replicas)
	}
	other := helmcli.Find[*appsv1.Deployment](t, objects, networkFSOther)
	if other.Spec.Selector.MatchLabels["app.kubernetes.io/component"] ==
		deployment.Spec.Selector.MatchLabels["app.kubernetes.io/component"] {
		t.Error("two Deployments select the same pods")
	}
	c = container(t, other.Spec.Template.Spec, "provisioner")
	args := strings.Join(c.Args, " ")
	if !strings.HasPrefix(args, "--mode=shared --name=example.com/Big_nfs --id=site: 1 --path=/mnt/big-nfs "+
		"--require-mount=false --http") ||
		len(c.VolumeMounts) != 1 || len(other.Spec.Template.Spec.Volumes) != 1 ||
		c.VolumeMounts[0].MountPath != "/mnt/big-nfs" {
		t.Errorf("the other instance: arguments %s, mounts %+v", args, c.VolumeMounts)
	}
}

func TestNetworkFSClasses(t *testing.T) {
	t.Parallel()
	_, full := networkFSValues()
	objects := legacyObjects(t, full)
	describe := func(name string) string {
		c := helmcli.Find[*storagev1.StorageClass](t, objects, name)
		return c.Parameters["pvDir"] + "|" + c.Parameters["cephFSQuota"] + "|" + describeClass(t, objects, name)
	}
	if got := describe("plain"); got != "/ceph||torchbox.com/hostpath|Delete|Immediate|||" {
		t.Errorf("class with defaults: %s", got)
	}
	if got := describe("cephfs"); got !=
		"/ceph/pvs|true|torchbox.com/hostpath|Retain|WaitForFirstConsumer|true|shared|annotation" {
		t.Errorf("class with everything: %s", got)
	}
}

// TestNetworkFSRights: exactly what the provisioner asks of the API.
func TestNetworkFSRights(t *testing.T) {
	t.Parallel()
	_, full := networkFSValues()
	objects := legacyObjects(t, full)
	got := map[string]string{}
	for _, rule := range helmcli.Find[*rbacv1.ClusterRole](t, objects, "storage-driver-shared").Rules {
		got[strings.Join(rule.APIGroups, ",")+"/"+strings.Join(rule.Resources, ",")] = strings.Join(rule.Verbs, " ")
	}
	want := map[string]string{
		"/persistentvolumes": "get list watch create delete", "/persistentvolumeclaims": "get list watch",
		"storage.k8s.io/storageclasses": "get list watch", "/events": "create patch",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	leases := []string{"coordination.k8s.io"}
	wantLeases := []rbacv1.PolicyRule{
		{APIGroups: leases, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{
			APIGroups: leases, Resources: []string{"leases"}, Verbs: []string{"get", "update"},
			ResourceNames: []string{"torchbox.com-hostpath", "example.com-big-nfs-site--1"},
		},
	}
	if diff := cmp.Diff(wantLeases, helmcli.Find[*rbacv1.Role](t, objects, "storage-driver-shared").Rules); diff != "" {
		t.Errorf("rules in the namespace (-want +got):\n%s", diff)
	}
	for _, subject := range append(
		helmcli.Find[*rbacv1.ClusterRoleBinding](t, objects, "storage-driver-shared").Subjects,
		helmcli.Find[*rbacv1.RoleBinding](t, objects, "storage-driver-shared").Subjects...,
	) {
		if subject.Name != "shared-account" || subject.Namespace != helmcli.Namespace {
			t.Errorf("bound to %+v", subject)
		}
	}
}

// TestNetworkFSConstraints: what OpenShift lets the pods do is what they do, and one account may use it.
func TestNetworkFSConstraints(t *testing.T) {
	t.Parallel()
	_, full := networkFSValues()
	objects := legacyObjects(t, full)
	scc := helmcli.Find[*securityv1.SecurityContextConstraints](t, objects, "storage-driver-shared")
	if scc.AllowPrivilegedContainer || *scc.AllowPrivilegeEscalation || !scc.AllowHostDirVolumePlugin ||
		scc.AllowHostNetwork || scc.AllowHostPID || len(scc.Users)+len(scc.Groups) > 0 {
		t.Errorf("constraints %+v, want host paths and no privileges", scc)
	}
	added := container(t, helmcli.Find[*appsv1.Deployment](t, objects, networkFSFull).Spec.Template.Spec,
		"provisioner").
		SecurityContext.Capabilities.Add
	if diff := cmp.Diff(added, scc.AllowedCapabilities); diff != "" {
		t.Errorf("capabilities that the container adds and that are allowed (-container +allowed):\n%s", diff)
	}
	role := helmcli.Find[*rbacv1.ClusterRole](t, objects, "storage-driver-shared-scc").Rules
	if len(role) != 1 || role[0].ResourceNames[0] != "storage-driver-shared" || role[0].Verbs[0] != "use" {
		t.Errorf("rules %+v", role)
	}
	binding := helmcli.Find[*rbacv1.RoleBinding](t, objects, "storage-driver-shared-scc")
	if binding.RoleRef.Name != "storage-driver-shared-scc" || binding.Subjects[0].Name != "shared-account" {
		t.Errorf("%s is bound to %+v", binding.RoleRef.Name, binding.Subjects)
	}
}

func TestNetworkFSNetworkPolicies(t *testing.T) {
	t.Parallel()
	_, full := networkFSValues()
	objects := legacyObjects(t, full)
	for _, name := range []string{networkFSFull, networkFSOther} {
		policy := helmcli.Find[*networkingv1.NetworkPolicy](t, objects, name)
		pods := helmcli.Find[*appsv1.Deployment](t, objects, name).Spec.Template.Labels
		for key, value := range policy.Spec.PodSelector.MatchLabels {
			if pods[key] != value {
				t.Errorf("%s selects %s=%s, and the pods have %q", name, key, value, pods[key])
			}
		}
		in, out := policy.Spec.Ingress, policy.Spec.Egress
		if len(in) != 1 || in[0].Ports[0].Port.IntValue() != 19896 ||
			in[0].From[0].NamespaceSelector.MatchLabels["name"] != "monitoring" {
			t.Errorf("%s: ingress %+v, want scrapes from monitoring", name, in)
		}
		if len(out) != 2 || out[0].Ports[0].Port.IntValue() != 8443 || out[1].Ports[0].Port.IntValue() != 53 {
			t.Errorf("%s: egress %+v, want the API server and DNS", name, out)
		}
	}
}

func TestNetworkFSRefusals(t *testing.T) {
	t.Parallel()
	instances := func(list string) map[string]string {
		return map[string]string{
			"legacyProvisioner.shared.enabled": "true", "legacyProvisioner.shared.instances": list,
		}
	}
	one := func(path, class string) map[string]string {
		return instances(`[{"name":"torchbox.com/hostpath","path":"` + path + `","storageClasses":[` + class + `]}]`)
	}
	with := func(values, more map[string]string) map[string]string {
		maps.Copy(values, more)
		return values
	}
	const first = `- legacyProvisioner.shared.instances[0] "torchbox.com/hostpath": `
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		expectRefusals(t, helm, map[string]refusal{
			"no instance": {json: instances(`[]`), want: []string{
				"- legacyProvisioner.shared.enabled: legacyProvisioner.shared.instances is empty; give one its name " +
					"and the path where the storage is mounted on the nodes.",
			}},
			"no path": {json: instances(`[{"name":"a"}]`), want: []string{"/shared/instances/0", "'path'"}},
			"relative path": {
				json: instances(`[{"name":"a","path":"ceph"}]`), want: []string{"/shared/instances/0/path"},
			},
			"bad name": {
				json: instances(`[{"name":"a b","path":"/ceph"}]`), want: []string{"/shared/instances/0/name"},
			},
			"relative pvDir": {
				json: instances(`[{"name":"a","path":"/ceph","storageClasses":[{"name":"a","pvDir":"pvs"}]}]`),
				want: []string{"/shared/instances/0/storageClasses/0/pvDir"},
			},
			"mount options": {
				json: instances(`[{"name":"a","path":"/ceph","storageClasses":[{"name":"a","mountOptions":["ro"]}]}]`),
				want: []string{"/shared/instances/0/storageClasses/0", "'mountOptions'"},
			},
			"no such value": {json: map[string]string{"legacyProvisioner.shared.path": `"/x"`}, want: []string{
				"/legacyProvisioner/shared", "'path'",
			}},
			"pvDir elsewhere": {
				json: one("/ceph", `{"name":"a","pvDir":"/cephfs"}`),
				want: []string{
					first + `storageClasses[0] "a": its pvDir /cephfs is not in the instance's path /ceph, which is ` +
						"all that its pods see; move it there, or make another instance.",
				},
			},
			"pvDir among a pool's volumes": {
				json: with(one("/ceph", `{"name":"a","pvDir":"/ceph/pool/csi"}`), map[string]string{
					"storagePools": `[{"name":"nfs","path":"/ceph/pool"}]`, "storageClasses": `[]`,
				}),
				want: []string{
					first + `storageClasses[0] "a": its pvDir /ceph/pool/csi lies where the pool "nfs" keeps its ` +
						"volumes (/ceph/pool/csi); give it another directory.",
				},
			},
			"the node's own paths": {
				json: instances(`[{"name":"torchbox.com/hostpath","path":"/var/lib"}]`),
				want: []string{
					first + "its path /var/lib and driver.stateDir (/var/lib/hostpath-provisioner-state) lie inside " +
						"each other; name the directory where the storage is mounted.",
					first + "its path /var/lib and kubeletDir (/var/lib/kubelet) lie inside each other; name the " +
						"directory where the storage is mounted.",
				},
			},
			"names": {
				json: instances(`[{"name":"a.b/c","path":"/x"},{"name":"a-b/c","path":"/y"},` +
					`{"name":"kubevirt.io.hostpath-provisioner","path":"/z"}]`),
				want: []string{
					`- legacyProvisioner.shared.instances[1] "a-b/c" and "a.b/c": names must be unique, also where ` +
						"only letters and digits count; rename one.",
					`- legacyProvisioner.shared.instances[2] "kubevirt.io.hostpath-provisioner": that is the name of ` +
						"another provisioner of this chart, and both would take each other's claims; choose another.",
				},
			},
			"classes": {
				json: instances(
					`[{"name":"torchbox.com/hostpath","path":"/x","storageClasses":[{"name":"hostpath-local"},` +
						`{"name":"a","default":true},{"name":"b","default":true}]}]`),
				want: []string{
					first + `storageClasses[0] "hostpath-local": there is another class of that name; names ` +
						`must be unique.`,
					"- legacyProvisioner.shared.instances: a, b are all marked as the cluster's default " +
						"class; mark one.",
				},
			},
		})
	})
}

// TestNetworkFSNotes name the instances and what has to be so on the nodes.
func TestNetworkFSNotes(t *testing.T) {
	t.Parallel()
	_, full := networkFSValues()
	text := notes(t, full)
	for _, want := range []string{
		"\n  torchbox.com/hostpath: volumes in /ceph, only while the storage is mounted there\n",
		"\n  example.com/Big_nfs: volumes in /mnt/big-nfs\n",
		"\nkubectl --namespace storage rollout status deployment/" + networkFSFull + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("NOTES do not have %q:\n%s", want, text)
		}
	}
}
