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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// legacyValues enables the legacy provisioner with its defaults, and with every value that it has.
func legacyValues() (plain, full helmcli.Values) {
	return helmcli.Values{Set: set("legacyProvisioner.enabled", "true")}, helmcli.Values{
		Files: []string{"testdata/legacy.yaml"},
	}
}

func legacyObjects(t *testing.T, values helmcli.Values) []client.Object {
	t.Helper()
	return helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values))
}

// TestLegacyRenderings: with each Helm the same, twice; beside the driver and never instead of it.
func TestLegacyRenderings(t *testing.T) {
	t.Parallel()
	plain, full := legacyValues()
	addsOnly(t, plain, full,
		"ClusterRole /hpp-hostpath-provisioner-legacy", "ClusterRoleBinding /hpp-hostpath-provisioner-legacy",
		"DaemonSet storage/hpp-hostpath-provisioner-legacy", "ServiceAccount storage/hpp-hostpath-provisioner-legacy",
		"StorageClass /hostpath-provisioner", "ValidatingAdmissionPolicy /hpp-hostpath-provisioner-legacy",
		"ValidatingAdmissionPolicyBinding /hpp-hostpath-provisioner-legacy")
}

// addsOnly renders values with each Helm, twice, and checks that plain ones add those objects to the driver's.
func addsOnly(t *testing.T, plain, full helmcli.Values, want ...string) {
	t.Helper()
	rendered := map[string]string{}
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		for name, values := range map[string]helmcli.Values{"plain": plain, "full": full} {
			out := helm.MustTemplate(t, values)
			if diff := cmp.Diff(out, helm.MustTemplate(t, values)); diff != "" {
				t.Errorf("%s: rendering twice gives two results: %s", name, diff)
			}
			objects := helmcli.Ids(helmcli.Objects(t, out))
			if earlier, ok := rendered[name]; ok && earlier != strings.Join(objects, "\n") {
				t.Errorf("%s: the two Helms render different objects", name)
			}
			rendered[name] = strings.Join(objects, "\n")
		}
	})
	want = append(want, helmcli.Ids(legacyObjects(t, helmcli.Values{}))...)
	if diff := cmp.Diff(sorted(want), sorted(strings.Split(rendered["plain"], "\n"))); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// TestLegacyLeavesItToTheOperator, which renders it from the same values.
func TestLegacyLeavesItToTheOperator(t *testing.T) {
	t.Parallel()
	_, full := legacyValues()
	leftToTheOperator(t, full, "legacy")
}

func TestLegacyPod(t *testing.T) {
	t.Parallel()
	plain, _ := legacyValues()
	ds := helmcli.Find[*appsv1.DaemonSet](t, legacyObjects(t, plain), "hpp-hostpath-provisioner-legacy")
	c := container(t, ds.Spec.Template.Spec, "provisioner")
	if diff := cmp.Diff([]string{"--mode=node", "--http-address=:9896", "--log-level=info", "--log-format=json"},
		c.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	environment := map[string]string{}
	for _, e := range c.Env {
		environment[e.Name] = e.Value
		if e.ValueFrom != nil {
			environment[e.Name] = e.ValueFrom.FieldRef.FieldPath
		}
	}
	want := map[string]string{
		"PV_DIR": "/var/hpvolumes", "NODE_NAME": "spec.nodeName", "USE_NAMING_PREFIX": "false",
		"PV_CAPACITY": "requested",
	}
	if diff := cmp.Diff(want, environment); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	mount, volume := c.VolumeMounts[0], ds.Spec.Template.Spec.Volumes[0]
	if len(c.VolumeMounts) != 1 || mount.MountPath != "/var/hpvolumes" ||
		*mount.MountPropagation != corev1.MountPropagationHostToContainer {
		t.Errorf("mounts %+v, want the directory at its own path, with what is mounted there later", c.VolumeMounts)
	}
	if len(ds.Spec.Template.Spec.Volumes) != 1 || volume.HostPath.Path != "/var/hpvolumes" ||
		*volume.HostPath.Type != corev1.HostPathDirectoryOrCreate {
		t.Errorf("volumes %+v, want the directory, made if it is missing", ds.Spec.Template.Spec.Volumes)
	}
	if update := ds.Spec.UpdateStrategy.RollingUpdate; update.MaxUnavailable.String() != "10%" ||
		update.MaxSurge.IntValue() != 0 {
		t.Errorf("update strategy %+v, want never two pods on a node", update)
	}
	if got := c.LivenessProbe.HTTPGet.Path + " " + c.ReadinessProbe.HTTPGet.Path; got != "/healthz /readyz" {
		t.Errorf("probes %s", got)
	}
}

// TestLegacyPodHasNoPrivileges: root with the two rights over files that deleting other people's needs.
func TestLegacyPodHasNoPrivileges(t *testing.T) {
	t.Parallel()
	plain, _ := legacyValues()
	ds := helmcli.Find[*appsv1.DaemonSet](t, legacyObjects(t, plain), "hpp-hostpath-provisioner-legacy")
	rootWithoutPrivileges(t, ds.Spec.Template.Spec, "provisioner")
}

// rootWithoutPrivileges checks a container that deletes other people's files.
func rootWithoutPrivileges(t *testing.T, spec corev1.PodSpec, name string) {
	t.Helper()
	security := container(t, spec, name).SecurityContext
	if *security.Privileged || *security.AllowPrivilegeEscalation || !*security.ReadOnlyRootFilesystem ||
		*security.RunAsUser != 0 || spec.HostNetwork || spec.HostPID || spec.HostIPC {
		t.Errorf("security context %+v, want root without privileges", security)
	}
	want := &corev1.Capabilities{Add: []corev1.Capability{"DAC_OVERRIDE", "FOWNER"}, Drop: []corev1.Capability{"ALL"}}
	if diff := cmp.Diff(want, security.Capabilities); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
	if security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("seccomp %s", security.SeccompProfile.Type)
	}
	if got := security.SELinuxOptions; got.Type != "spc_t" || got.Level != "s0" {
		t.Errorf("SELinux %+v, want spc_t and a level that all pods may enter", got)
	}
}

// leftToTheOperator checks that the chart renders none of a provisioner's objects where the operator does.
func leftToTheOperator(t *testing.T, values helmcli.Values, named string) {
	t.Helper()
	values.Set = set("operator.enabled", "true")
	for _, id := range helmcli.Ids(legacyObjects(t, values)) {
		if strings.HasSuffix(id, "-shared-pool-ids") { // the driver's, whoever installs it
			continue
		}
		if strings.Contains(id, named) || strings.HasPrefix(id, "StorageClass") {
			t.Errorf("%s is rendered beside the operator", id)
		}
	}
}

// TestEveryLegacyValueReachesThePod: each value of testdata/legacy.yaml is somewhere.
func TestEveryLegacyValueReachesThePod(t *testing.T) {
	t.Parallel()
	_, full := legacyValues()
	objects := legacyObjects(t, full)
	ds := helmcli.Find[*appsv1.DaemonSet](t, objects, "storage-driver-legacy")
	account := helmcli.Find[*corev1.ServiceAccount](t, objects, "legacy-account")
	spec, meta := ds.Spec.Template.Spec, ds.Spec.Template.ObjectMeta
	c := container(t, spec, "provisioner")
	got := map[string]string{
		"account": spec.ServiceAccountName, "account annotation": account.Annotations["example.com/account"],
		"image":       c.Image,
		"pull policy": string(c.ImagePullPolicy), "pull secret": spec.ImagePullSecrets[0].Name,
		"priority":   spec.PriorityClassName,
		"toleration": spec.Tolerations[0].Key, "node": spec.NodeSelector["storage"],
		"affinity":   affinityKey(spec.Affinity),
		"annotation": meta.Annotations["example.com/pod"], "label": meta.Labels["example.com/pod"],
		"scc":    meta.Annotations["openshift.io/required-scc"],
		"memory": c.Resources.Limits.Memory().String(), "arguments": strings.Join(c.Args, " "),
		"extra":  c.Env[len(c.Env)-1].Name,
		"path":   c.Env[0].Value + " " + c.VolumeMounts[0].MountPath + " " + spec.Volumes[0].HostPath.Path,
		"prefix": c.Env[2].Name + "=" + c.Env[2].Value, "capacity": c.Env[3].Name + "=" + c.Env[3].Value,
	}
	want := map[string]string{
		"account": "legacy-account", "account annotation": "annotation",
		"image":       "mirror.example.com/hub/hostpath-provisioner/legacy:1",
		"pull policy": "Always", "pull secret": "pull-secret", "priority": "important", "toleration": "dedicated",
		"node": "yes", "affinity": "virtual",
		"annotation": "annotation", "label": "label", "scc": "storage-driver-legacy", "memory": "128Mi",
		"arguments": "--mode=node --require-mount --host-mounts=/host/mountinfo --http-address=:19896 " +
			"--log-level=debug --log-format=text --log-level=warn",
		"extra": "GOMEMLIMIT",
		"path":  "/srv/hpvolumes /srv/hpvolumes /srv/hpvolumes", "prefix": "USE_NAMING_PREFIX=true",
		"capacity": "PV_CAPACITY=filesystem",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
	if m, v := c.VolumeMounts[1], spec.Volumes[1]; m.MountPath != "/host/mountinfo" || !m.ReadOnly ||
		v.HostPath.Path != "/proc/1/mountinfo" || *v.HostPath.Type != corev1.HostPathFile {
		t.Errorf("mount %+v of %+v, want what is mounted on the node", m, v)
	}
	if c.Ports[0].ContainerPort != 19896 {
		t.Errorf("port %d, want 19896", c.Ports[0].ContainerPort)
	}
}

// describeClass is what a class says, of all but its parameters.
func describeClass(t *testing.T, objects []client.Object, name string) string {
	t.Helper()
	c := helmcli.Find[*storagev1.StorageClass](t, objects, name)
	return strings.Join([]string{
		c.Provisioner, string(*c.ReclaimPolicy), string(*c.VolumeBindingMode),
		c.Annotations["storageclass.kubernetes.io/is-default-class"], c.Labels["tier"],
		c.Annotations["example.com/class"],
	}, "|")
}

func TestLegacyClasses(t *testing.T) {
	t.Parallel()
	_, full := legacyValues()
	objects := legacyObjects(t, full)
	for name, want := range map[string]string{
		"hostpath-provisioner": "Delete|WaitForFirstConsumer|||", "old": "Retain|Immediate|true|old|annotation",
	} {
		if got := describeClass(t, objects, name); got != "kubevirt.io/hostpath-provisioner|"+want {
			t.Errorf("class %s: %s", name, got)
		}
	}
}

// TestLegacyRights: exactly what the provisioner asks of the API.
func TestLegacyRights(t *testing.T) {
	t.Parallel()
	plain, _ := legacyValues()
	objects := legacyObjects(t, plain)
	got := map[string]string{}
	for _, rule := range helmcli.Find[*rbacv1.ClusterRole](t, objects, "hpp-hostpath-provisioner-legacy").Rules {
		got[strings.Join(rule.APIGroups, ",")+"/"+strings.Join(rule.Resources, ",")] = strings.Join(rule.Verbs, " ")
	}
	want := map[string]string{
		"/persistentvolumes": "get list watch create delete", "/persistentvolumeclaims": "get list watch patch update",
		"storage.k8s.io/storageclasses": "get list watch", "/events": "create patch", "/nodes": "get list",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	subject := helmcli.Find[*rbacv1.ClusterRoleBinding](t, objects, "hpp-hostpath-provisioner-legacy").Subjects[0]
	if subject.Name != "hpp-hostpath-provisioner-legacy" || subject.Namespace != helmcli.Namespace {
		t.Errorf("bound to %+v", subject)
	}
}

// TestLegacyConstraints: what OpenShift lets the pods do is what they do, and one account may use it.
func TestLegacyConstraints(t *testing.T) {
	t.Parallel()
	_, full := legacyValues()
	objects := legacyObjects(t, full)
	scc := helmcli.Find[*securityv1.SecurityContextConstraints](t, objects, "storage-driver-legacy")
	if scc.AllowPrivilegedContainer || *scc.AllowPrivilegeEscalation || !scc.AllowHostDirVolumePlugin ||
		scc.AllowHostNetwork || len(scc.Users)+len(scc.Groups) > 0 {
		t.Errorf("constraints %+v, want host paths and no privileges", scc)
	}
	if diff := cmp.Diff([]corev1.Capability{"KILL", "MKNOD", "SETUID", "SETGID"},
		scc.RequiredDropCapabilities); diff != "" {
		t.Errorf("capabilities that are dropped (-want +got):\n%s", diff)
	}
	added := container(t, helmcli.Find[*appsv1.DaemonSet](t, objects, "storage-driver-legacy").Spec.Template.Spec,
		"provisioner").SecurityContext.Capabilities.Add
	if diff := cmp.Diff(added, scc.AllowedCapabilities); diff != "" {
		t.Errorf("capabilities that the container adds and that are allowed (-container +allowed):\n%s", diff)
	}
	role := helmcli.Find[*rbacv1.ClusterRole](t, objects, "storage-driver-legacy-scc").Rules
	want := []rbacv1.PolicyRule{{
		Verbs: []string{"use"}, APIGroups: []string{"security.openshift.io"},
		Resources: []string{"securitycontextconstraints"}, ResourceNames: []string{"storage-driver-legacy"},
	}}
	if diff := cmp.Diff(want, role); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	binding := helmcli.Find[*rbacv1.RoleBinding](t, objects, "storage-driver-legacy-scc")
	if binding.RoleRef.Name != "storage-driver-legacy-scc" || binding.Subjects[0].Name != "legacy-account" {
		t.Errorf("%s is bound to %+v", binding.RoleRef.Name, binding.Subjects)
	}
}

func TestLegacyNetworkPolicy(t *testing.T) {
	t.Parallel()
	_, full := legacyValues()
	objects := legacyObjects(t, full)
	policy := helmcli.Find[*networkingv1.NetworkPolicy](t, objects, "storage-driver-legacy")
	pods := helmcli.Find[*appsv1.DaemonSet](t, objects, "storage-driver-legacy").Spec.Template.Labels
	for key, value := range policy.Spec.PodSelector.MatchLabels {
		if pods[key] != value {
			t.Errorf("it selects %s=%s, and the pods have %q", key, value, pods[key])
		}
	}
	in, out := policy.Spec.Ingress, policy.Spec.Egress
	if len(in) != 1 || in[0].Ports[0].Port.IntValue() != 19896 ||
		in[0].From[0].NamespaceSelector.MatchLabels["name"] != "monitoring" {
		t.Errorf("ingress %+v, want scrapes from monitoring", in)
	}
	if len(out) != 2 || out[0].Ports[0].Port.IntValue() != 8443 || out[1].Ports[0].Port.IntValue() != 53 {
		t.Errorf("egress %+v, want the API server and DNS", out)
	}
}

func TestLegacyRefusals(t *testing.T) {
	t.Parallel()
	with := func(more map[string]string) map[string]string {
		all := set("legacyProvisioner.enabled", "true")
		maps.Copy(all, more)
		return all
	}
	classes := func(list string) map[string]string { return set("legacyProvisioner.storageClasses", list) }
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		expectRefusals(t, helm, map[string]refusal{
			"relative path": {
				set: set("legacyProvisioner.path", "hpvolumes"), want: []string{"/legacyProvisioner/path"},
			},
			"unknown capacity": {
				set: set("legacyProvisioner.capacity", "all"), want: []string{"/legacyProvisioner/capacity"},
			},
			"mount options": {json: classes(`[{"name":"a","mountOptions":["ro"]}]`), want: []string{
				"/legacyProvisioner/storageClasses/0", "'mountOptions'",
			}},
			"path in kubeletDir": {set: with(set("legacyProvisioner.path", "/var/lib/kubelet/volumes")), want: []string{
				"- legacyProvisioner.path /var/lib/kubelet/volumes and kubeletDir (/var/lib/kubelet) lie inside each " +
					"other; give each its own directory.",
			}},
			"path around stateDir": {
				set: with(set("legacyProvisioner.path", "/var/lib/hostpath-provisioner-state")),
				want: []string{
					"- legacyProvisioner.path /var/lib/hostpath-provisioner-state and driver.stateDir " +
						"(/var/lib/hostpath-provisioner-state) lie inside each other; give each its own directory.",
				},
			},
			"path among a pool's volumes": {
				set: with(set("legacyProvisioner.path", "/var/lib/hostpath-provisioner/csi/old")),
				want: []string{
					`- legacyProvisioner.path /var/lib/hostpath-provisioner/csi/old lies where storagePools[0] ` +
						`"local" keeps its volumes ` +
						"(/var/lib/hostpath-provisioner/csi); give it another directory.",
				},
			},
			"a class twice": {
				set: with(nil), json: classes(`[{"name":"hostpath-local"},{"name":"a"},{"name":"a"}]`),
				want: []string{
					`- legacyProvisioner.storageClasses[0] "hostpath-local": there is another class of that name; ` +
						`names must be unique.`,
					`- legacyProvisioner.storageClasses[2] "a": there is another class of that name; names ` +
						`must be unique.`,
				},
			},
			"two defaults": {
				set: with(nil),
				json: map[string]string{
					"storageClasses":                   `[{"name":"a","default":true}]`,
					"legacyProvisioner.storageClasses": `[{"name":"b","default":true}]`,
				},
				want: []string{
					"- legacyProvisioner.storageClasses: a, b are all marked as the cluster's default class; mark one.",
				},
			},
		})
	})
}

// TestLegacyMayShareItsPathWithAPool, as spec.pathConfig of a HostPathProvisioner wants it.
func TestLegacyMayShareItsPathWithAPool(t *testing.T) {
	t.Parallel()
	values, _ := legacyValues()
	values.JSON = map[string]string{
		"storagePools":   `[{"name":"legacy","path":"/var/hpvolumes"}]`,
		"storageClasses": `[{"name":"csi","storagePool":"legacy"}]`,
	}
	legacyObjects(t, values)
}
