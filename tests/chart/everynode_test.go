package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	securityv1 "github.com/openshift/api/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// The names of the objects: with the defaults, and in testdata/everynode.yaml; of the managers with a suffix.
const (
	everyNodePlain = "hpp-hostpath-provisioner-every-node"
	everyNodeFull  = "storage-driver-every-node"
	ofManagers     = "-manager"
)

// everyNodeValues enables the provisioner for every node with its defaults, and with every value that it has.
func everyNodeValues() (plain, full helmcli.Values) {
	return helmcli.Values{Set: set("legacyProvisioner.everyNode.enabled", "true")}, helmcli.Values{
		Files: []string{"testdata/everynode.yaml"},
	}
}

// everyNodeObjects are those that it adds to a namespace and to the cluster, but for its class.
func everyNodeObjects(namespace string) []string {
	all := []string{
		"DaemonSet " + namespace + "/" + everyNodePlain + ofManagers, "Deployment " + namespace + "/" + everyNodePlain,
		"Service " + namespace + "/" + names.EveryNodeManager,
	}
	for _, name := range []string{everyNodePlain, everyNodePlain + ofManagers} {
		all = append(all, "ClusterRole /"+name, "ClusterRoleBinding /"+name, "Role "+namespace+"/"+name,
			"RoleBinding "+namespace+"/"+name, "ServiceAccount "+namespace+"/"+name)
	}
	slices.Sort(all)
	return all
}

// TestEveryNodeRenderings: with each Helm the same, twice; beside the driver and never instead of it.
func TestEveryNodeRenderings(t *testing.T) {
	t.Parallel()
	plain, full := everyNodeValues()
	addsOnly(t, plain, full, append(everyNodeObjects(helmcli.Namespace), "StorageClass /hostpath-multihost")...)
}

// TestEveryNodeIsLeftToTheOperator, which renders it from the same values.
func TestEveryNodeIsLeftToTheOperator(t *testing.T) {
	t.Parallel()
	_, full := everyNodeValues()
	leftToTheOperator(t, full, "every-node")
}

// TestEveryNodePods: what both are told, and what they have.
func TestEveryNodePods(t *testing.T) {
	t.Parallel()
	plain, _ := everyNodeValues()
	objects := legacyObjects(t, plain)
	deployment := helmcli.Find[*appsv1.Deployment](t, objects, everyNodePlain)
	set := helmcli.Find[*appsv1.DaemonSet](t, objects, everyNodePlain+ofManagers)
	common := []string{
		"--name=kubeboost.github.com/hostpath-multihost-provisioner", "--path=/var/kubernetes",
		"--managers=" + everyNodePlain + ofManagers, "--http-address=:9896", "--log-level=info", "--log-format=json",
	}
	provisioner := container(t, deployment.Spec.Template.Spec, "provisioner")
	manager := container(t, set.Spec.Template.Spec, "manager")
	for c, want := range map[*corev1.Container][]string{
		&provisioner: append([]string{"--mode=everyNode", "--node-gone-after=10m"}, common...),
		&manager:     append([]string{"--mode=everyNodeManager", "--provisioner-account=" + everyNodePlain}, common...),
	} {
		if diff := cmp.Diff(want, c.Args); diff != "" {
			t.Errorf("arguments (-want +got):\n%s", diff)
		}
		if got := c.LivenessProbe.HTTPGet.Path + " " + c.ReadinessProbe.HTTPGet.Path; got != "/healthz /readyz" {
			t.Errorf("probes %s", got)
		}
	}
	environment := func(c corev1.Container) (all []string) {
		for _, e := range c.Env {
			all = append(all, e.Name+"="+e.ValueFrom.FieldRef.FieldPath)
		}
		return all
	}
	got := [][]string{environment(provisioner), environment(manager)}
	want := [][]string{
		{"POD_NAMESPACE=metadata.namespace"}, {"POD_NAMESPACE=metadata.namespace", "NODE_NAME=spec.nodeName"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if set.Name != strings.TrimPrefix(manager.Args[4], "--managers=") || *deployment.Spec.Replicas != 1 {
		t.Errorf("DaemonSet %s, %d replicas", set.Name, *deployment.Spec.Replicas)
	}
	if deployment.Spec.Template.Spec.Tolerations[0].TolerationSeconds == nil ||
		set.Spec.Template.Spec.Tolerations[0].TolerationSeconds != nil {
		t.Error("the provisioner has to leave a node that is away, and managers have to stay")
	}
}

// TestEveryNodeDisks: the provisioner has a token and no disk, a manager the directory and no token of that kind.
func TestEveryNodeDisks(t *testing.T) {
	t.Parallel()
	plain, _ := everyNodeValues()
	objects := legacyObjects(t, plain)
	spec := helmcli.Find[*appsv1.Deployment](t, objects, everyNodePlain).Spec.Template.Spec
	hour := int64(3600)
	want := []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
			Audience: names.EveryNodeManager, ExpirationSeconds: &hour, Path: "token",
		}}},
	}}}}
	if diff := cmp.Diff(want, spec.Volumes); diff != "" {
		t.Errorf("the provisioner's volumes (-want +got):\n%s", diff)
	}
	mounts := []corev1.VolumeMount{{Name: "token", MountPath: "/var/run/secrets/hostpath-provisioner", ReadOnly: true}}
	if diff := cmp.Diff(mounts, container(t, spec, "provisioner").VolumeMounts); diff != "" {
		t.Errorf("the provisioner's mounts (-want +got):\n%s", diff)
	}
	spec = helmcli.Find[*appsv1.DaemonSet](t, objects, everyNodePlain+ofManagers).Spec.Template.Spec
	is, propagation := corev1.HostPathDirectoryOrCreate, corev1.MountPropagationHostToContainer
	want = []corev1.Volume{{Name: "volumes", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/var/kubernetes", Type: &is},
	}}}
	if diff := cmp.Diff(want, spec.Volumes); diff != "" {
		t.Errorf("a manager's volumes (-want +got):\n%s", diff)
	}
	mounts = []corev1.VolumeMount{{Name: "volumes", MountPath: "/var/kubernetes", MountPropagation: &propagation}}
	if diff := cmp.Diff(mounts, container(t, spec, "manager").VolumeMounts); diff != "" {
		t.Errorf("a manager's mounts (-want +got):\n%s", diff)
	}
}

// TestEveryNodePodsHaveNoPrivileges: the provisioner is nobody; a manager is root with the two rights over files that
// deleting other people's needs.
func TestEveryNodePodsHaveNoPrivileges(t *testing.T) {
	t.Parallel()
	plain, _ := everyNodeValues()
	objects := legacyObjects(t, plain)
	spec := helmcli.Find[*appsv1.Deployment](t, objects, everyNodePlain).Spec.Template.Spec
	security := container(t, spec, "provisioner").SecurityContext
	if !*spec.SecurityContext.RunAsNonRoot || *spec.SecurityContext.RunAsUser != 65532 ||
		*security.AllowPrivilegeEscalation || !*security.ReadOnlyRootFilesystem ||
		len(security.Capabilities.Add) > 0 || security.Capabilities.Drop[0] != "ALL" {
		t.Errorf("the provisioner: %+v %+v", spec.SecurityContext, security)
	}
	spec = helmcli.Find[*appsv1.DaemonSet](t, objects, everyNodePlain+ofManagers).Spec.Template.Spec
	rootWithoutPrivileges(t, spec, "manager")
}

// TestEveryNodeService has kubeboost's name and port, and leads to every manager.
func TestEveryNodeService(t *testing.T) {
	t.Parallel()
	_, full := everyNodeValues()
	objects := legacyObjects(t, full)
	service := helmcli.Find[*corev1.Service](t, objects, "hostpath-multihost-manager")
	template := helmcli.Find[*appsv1.DaemonSet](t, objects, everyNodeFull+ofManagers).Spec.Template
	for key, value := range service.Spec.Selector {
		if template.Labels[key] != value {
			t.Errorf("it selects %s=%s, and the pods have %q", key, value, template.Labels[key])
		}
	}
	port, led := service.Spec.Ports[0], container(t, template.Spec, "manager").Ports[1]
	if service.Spec.ClusterIP != corev1.ClusterIPNone || port.Port != 8080 || led.ContainerPort != 8080 ||
		port.TargetPort.String() != led.Name {
		t.Errorf("Service %+v leads to %+v", service.Spec, led)
	}
}

// TestEveryEveryNodeValueReachesThePods: each value of testdata/everynode.yaml is somewhere.
func TestEveryEveryNodeValueReachesThePods(t *testing.T) {
	t.Parallel()
	_, full := everyNodeValues()
	objects := legacyObjects(t, full)
	deployment := helmcli.Find[*appsv1.Deployment](t, objects, everyNodeFull)
	manager := helmcli.Find[*appsv1.DaemonSet](t, objects, everyNodeFull+ofManagers)
	for name, template := range map[string]corev1.PodTemplateSpec{
		"provisioner": deployment.Spec.Template, "manager": manager.Spec.Template,
	} {
		spec, meta := template.Spec, template.ObjectMeta
		c := container(t, spec, name)
		account := helmcli.Find[*corev1.ServiceAccount](t, objects, spec.ServiceAccountName)
		got := map[string]string{
			"image": c.Image, "pull policy": string(c.ImagePullPolicy), "pull secret": spec.ImagePullSecrets[0].Name,
			"priority": spec.PriorityClassName, "node": spec.NodeSelector["storage"],
			"affinity":   affinityKey(spec.Affinity),
			"annotation": meta.Annotations["example.com/pod"], "label": meta.Labels["example.com/pod"],
			"memory": c.Resources.Limits.Memory().String(), "arguments": strings.Join(c.Args[2:], " "),
			"extra": c.Env[len(c.Env)-1].Name, "account": spec.ServiceAccountName,
			"toleration": spec.Tolerations[0].Key, "scc": meta.Annotations["openshift.io/required-scc"],
			"account annotation": account.Annotations["example.com/account"],
		}
		want := map[string]string{
			"image": "mirror.example.com/hub/hostpath-provisioner/legacy:1", "pull policy": "Always",
			"pull secret": "pull-secret", "priority": "important", "node": "yes", "affinity": "virtual",
			"annotation": "annotation", "label": "label", "memory": "128Mi", "extra": "GOMEMLIMIT",
			"arguments": "--name=example.com/every-node --path=/srv/every-node --managers=" + everyNodeFull +
				ofManagers + " --http-address=:19896 --log-level=debug --log-format=text --log-level=warn",
			"account": "every-node-account", "toleration": "dedicated", "scc": "restricted-v2",
			"account annotation": "annotation",
		}
		if name == "manager" {
			want["account"], want["toleration"], want["scc"] = "manager-account", "managers", everyNodeFull+ofManagers
			want["arguments"] += " --require-mount --host-mounts=/host/mountinfo"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if c.Ports[0].ContainerPort != 19896 {
			t.Errorf("%s: port %d, want 19896", name, c.Ports[0].ContainerPort)
		}
	}
	if args := container(t, deployment.Spec.Template.Spec, "provisioner").Args; args[1] != "--node-gone-after=1h" ||
		*deployment.Spec.Replicas != 2 {
		t.Errorf("arguments %v, %d replicas", args, *deployment.Spec.Replicas)
	}
	// Whose token it is that a manager listens to.
	if args := container(t, manager.Spec.Template.Spec, "manager").Args; args[1] !=
		"--provisioner-account=every-node-account" {
		t.Errorf("a manager's arguments %v", args)
	}
	if manager.Spec.Template.Spec.Volumes[0].HostPath.Path != "/srv/every-node" {
		t.Errorf("volumes %+v", manager.Spec.Template.Spec.Volumes)
	}
	// OpenShift chooses the user.
	if deployment.Spec.Template.Spec.SecurityContext.RunAsUser != nil {
		t.Errorf("security context %+v", deployment.Spec.Template.Spec.SecurityContext)
	}
}

func TestEveryNodeClasses(t *testing.T) {
	t.Parallel()
	_, full := everyNodeValues()
	objects := legacyObjects(t, full)
	describe := func(name string) string {
		c := helmcli.Find[*storagev1.StorageClass](t, objects, name)
		return c.Annotations["example.com/every-node-reuse-policy"] + "|" + describeClass(t, objects, name)
	}
	if got := describe("plain"); got != "|example.com/every-node|Delete|Immediate|||" {
		t.Errorf("class with defaults: %s", got)
	}
	if got := describe("kept"); got !=
		"SamePVCName|example.com/every-node|Retain|WaitForFirstConsumer|true|every|annotation" {
		t.Errorf("class with everything: %s", got)
	}
}

// TestEveryNodeRights: exactly what the two ask of the API.
func TestEveryNodeRights(t *testing.T) {
	t.Parallel()
	plain, _ := everyNodeValues()
	objects := legacyObjects(t, plain)
	describe := func(rules []rbacv1.PolicyRule) (all []string) {
		for _, rule := range rules {
			all = append(all, strings.TrimSpace(strings.Join(append(rule.Resources, rule.ResourceNames...), " ")+": "+
				strings.Join(rule.Verbs, " ")))
		}
		return all
	}
	const manager = everyNodePlain + ofManagers
	for name, want := range map[string][2][]string{
		everyNodePlain: {
			{
				"persistentvolumes: get list watch create patch delete", "persistentvolumeclaims: get list watch",
				"storageclasses: get list watch", "events: create patch", "nodes: get",
			},
			{
				"pods: list", "daemonsets " + manager + ": get", "configmaps: create",
				"configmaps " + manager + ": get patch", "leases: create", "leases " + manager + ": get update",
			},
		},
		manager: {
			{"persistentvolumes: get list watch", "events: create patch", "tokenreviews: create"},
			{"configmaps " + manager + ": get patch"},
		},
	} {
		got := [2][]string{
			describe(helmcli.Find[*rbacv1.ClusterRole](t, objects, name).Rules),
			describe(helmcli.Find[*rbacv1.Role](t, objects, name).Rules),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rules of %s (-want +got):\n%s", name, diff)
		}
		for _, subject := range append(
			helmcli.Find[*rbacv1.ClusterRoleBinding](t, objects, name).Subjects,
			helmcli.Find[*rbacv1.RoleBinding](t, objects, name).Subjects...,
		) {
			if subject.Name != name || subject.Namespace != helmcli.Namespace {
				t.Errorf("%s is bound to %+v", name, subject)
			}
		}
	}
}

// TestEveryNodeConstraints: what OpenShift lets the managers do is what they do, and one account may use it.
func TestEveryNodeConstraints(t *testing.T) {
	t.Parallel()
	_, full := everyNodeValues()
	objects := legacyObjects(t, full)
	const name = everyNodeFull + ofManagers
	scc := helmcli.Find[*securityv1.SecurityContextConstraints](t, objects, name)
	if scc.AllowPrivilegedContainer || *scc.AllowPrivilegeEscalation || !scc.AllowHostDirVolumePlugin ||
		scc.AllowHostNetwork || scc.AllowHostPID || len(scc.Users)+len(scc.Groups) > 0 {
		t.Errorf("constraints %+v, want host paths and no privileges", scc)
	}
	added := container(t, helmcli.Find[*appsv1.DaemonSet](t, objects, name).Spec.Template.Spec, "manager").
		SecurityContext.Capabilities.Add
	if diff := cmp.Diff(added, scc.AllowedCapabilities); diff != "" {
		t.Errorf("capabilities that the container adds and that are allowed (-container +allowed):\n%s", diff)
	}
	role := helmcli.Find[*rbacv1.ClusterRole](t, objects, everyNodeFull+"-scc").Rules
	if len(role) != 1 || role[0].ResourceNames[0] != name || role[0].Verbs[0] != "use" {
		t.Errorf("rules %+v", role)
	}
	binding := helmcli.Find[*rbacv1.RoleBinding](t, objects, everyNodeFull+"-scc")
	if binding.RoleRef.Name != everyNodeFull+"-scc" || binding.Subjects[0].Name != "manager-account" {
		t.Errorf("%s is bound to %+v", binding.RoleRef.Name, binding.Subjects)
	}
}

// TestEveryNodeNetworkPolicies: only the provisioner reaches the managers' port.
func TestEveryNodeNetworkPolicies(t *testing.T) {
	t.Parallel()
	_, full := everyNodeValues()
	objects := legacyObjects(t, full)
	labels := map[string]map[string]string{
		everyNodeFull: helmcli.Find[*appsv1.Deployment](t, objects, everyNodeFull).Spec.Template.Labels,
		everyNodeFull + ofManagers: helmcli.Find[*appsv1.DaemonSet](
			t, objects, everyNodeFull+ofManagers,
		).Spec.Template.Labels,
	}
	matches := func(name string, selector map[string]string) bool {
		for key, value := range selector {
			if labels[name][key] != value {
				return false
			}
		}
		return len(selector) > 0
	}
	for name := range labels {
		policy := helmcli.Find[*networkingv1.NetworkPolicy](t, objects, name)
		in, out := policy.Spec.Ingress, policy.Spec.Egress
		if !matches(name, policy.Spec.PodSelector.MatchLabels) || in[0].Ports[0].Port.IntValue() != 19896 ||
			in[0].From[0].NamespaceSelector.MatchLabels["name"] != "monitoring" ||
			out[0].Ports[0].Port.IntValue() != 8443 ||
			out[1].Ports[0].Port.IntValue() != 53 {
			t.Errorf("%s: %+v", name, policy.Spec)
		}
	}
	out := helmcli.Find[*networkingv1.NetworkPolicy](t, objects, everyNodeFull).Spec.Egress
	if len(out) != 3 || out[2].Ports[0].Port.IntValue() != 8080 ||
		!matches(everyNodeFull+ofManagers, out[2].To[0].PodSelector.MatchLabels) {
		t.Errorf("the provisioner's egress %+v, want the managers", out)
	}
	in := helmcli.Find[*networkingv1.NetworkPolicy](t, objects, everyNodeFull+ofManagers).Spec.Ingress
	if len(in) != 2 || in[1].Ports[0].Port.IntValue() != 8080 ||
		!matches(everyNodeFull, in[1].From[0].PodSelector.MatchLabels) {
		t.Errorf("a manager's ingress %+v, want the provisioner", in)
	}
}

func TestEveryNodeRefusals(t *testing.T) {
	t.Parallel()
	with := func(more map[string]string) map[string]string {
		all := map[string]string{"legacyProvisioner.everyNode.enabled": "true"}
		maps.Copy(all, more)
		return all
	}
	value := func(key, json string) map[string]string {
		return with(map[string]string{"legacyProvisioner.everyNode." + key: json})
	}
	classes := func(list string) map[string]string { return value("storageClasses", list) }
	const each = "lie inside each other; give each its own directory."
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		expectRefusals(t, helm, map[string]refusal{
			"relative path": {json: value("path", `"kubernetes"`), want: []string{"/everyNode/path"}},
			"no slash":      {json: value("name", `"kubeboost"`), want: []string{"/everyNode/name"}},
			"long name": {
				json: value("name", `"example.com/`+strings.Repeat("a", 51)+`"`), want: []string{"/everyNode/name"},
			},
			"no duration": {json: value("nodeGoneAfter", `"soon"`), want: []string{"/everyNode/nodeGoneAfter"}},
			"gone at once": {json: value("nodeGoneAfter", `"0s"`), want: []string{
				"legacyProvisioner.everyNode.nodeGoneAfter is 0s; it must be more than 0.",
			}},
			"no such value": {json: value("port", `8081`), want: []string{"/legacyProvisioner/everyNode", "'port'"}},
			"unknown reuse policy": {json: classes(`[{"name":"a","reusePolicy":"Sometimes"}]`), want: []string{
				"/everyNode/storageClasses/0/reusePolicy",
			}},
			"mount options": {json: classes(`[{"name":"a","mountOptions":["ro"]}]`), want: []string{
				"/everyNode/storageClasses/0", "'mountOptions'",
			}},
			"reuse of what is deleted": {json: classes(`[{"name":"a","reusePolicy":"Always"}]`), want: []string{
				`- legacyProvisioner.everyNode.storageClasses[0] "a": reusePolicy Always is about volumes that are ` +
					"retained; set reclaimPolicy to Retain, or leave reusePolicy out.",
			}},
			"the node's own paths": {json: value("path", `"/var/lib"`), want: []string{
				"- legacyProvisioner.everyNode.path /var/lib and driver.stateDir " +
					"(/var/lib/hostpath-provisioner-state) " + each,
				"- legacyProvisioner.everyNode.path /var/lib and kubeletDir (/var/lib/kubelet) " + each,
			}},
			"other provisioners' paths": {
				json: with(map[string]string{
					"legacyProvisioner.enabled": "true", "legacyProvisioner.path": `"/var/kubernetes"`,
					"legacyProvisioner.shared.enabled":   "true",
					"legacyProvisioner.shared.instances": `[{"name":"a.b/c","path":"/var/kubernetes/nfs"}]`,
				}),
				want: []string{
					"- legacyProvisioner.everyNode.path /var/kubernetes and legacyProvisioner.path (/var/kubernetes) " +
						each,
					"- legacyProvisioner.everyNode.path /var/kubernetes and " +
						"legacyProvisioner.shared.instances[0].path (/var/kubernetes/nfs) " + each,
				},
			},
			"path among a pool's volumes": {
				json: value("path", `"/var/lib/hostpath-provisioner/csi/every"`),
				want: []string{
					`- legacyProvisioner.everyNode.path /var/lib/hostpath-provisioner/csi/every lies where ` +
						`storagePools[0] "local" ` +
						"keeps its volumes (/var/lib/hostpath-provisioner/csi); give it another directory.",
				},
			},
			"another's name": {json: value("name", `"kubevirt.io/hostpath-provisioner"`), want: []string{
				"- legacyProvisioner.everyNode.name kubevirt.io/hostpath-provisioner: that is the name of another " +
					"provisioner of this chart, and both would take each other's claims; choose another.",
			}},
			"classes": {
				json: classes(`[{"name":"hostpath-local"},{"name":"a","default":true},{"name":"b","default":true}]`),
				want: []string{
					`- legacyProvisioner.everyNode.storageClasses[0] "hostpath-local": there is another class of ` +
						"that name; names must be unique.",
					"- legacyProvisioner.everyNode.storageClasses: a, b are all marked as the cluster's default " +
						"class; mark one.",
				},
			},
		})
	})
}

// TestEveryNodeNotes say what serves, and how to see whether it does.
func TestEveryNodeNotes(t *testing.T) {
	t.Parallel()
	_, full := everyNodeValues()
	text := notes(t, full)
	for _, want := range []string{
		"\n  example.com/every-node: volumes in /srv/every-node\n",
		"\nkubectl --namespace storage rollout status deployment/" + everyNodeFull + "\n",
		"\nkubectl --namespace storage rollout status daemonset/" + everyNodeFull + ofManagers + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("NOTES do not have %q:\n%s", want, text)
		}
	}
}
