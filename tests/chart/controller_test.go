package chart

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// controller is the full name of the controller's objects in a rendering without a name of its own.
const controller = "hpp-hostpath-provisioner-controller"

func controllerPod(t *testing.T, values helmcli.Values, name string) corev1.PodTemplateSpec {
	t.Helper()
	return helmcli.Find[*appsv1.Deployment](t, helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values)),
		name).Spec.Template
}

// TestControllerArguments: the sidecars and the controller meet at a socket that only they have.
func TestControllerArguments(t *testing.T) {
	t.Parallel()
	spec := controllerPod(t, helmcli.Values{}, controller).Spec
	got := map[string][]string{}
	for _, c := range spec.Containers {
		got[c.Name] = c.Args
		if !slices.ContainsFunc(
			c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "socket-dir" && m.MountPath == "/csi" },
		) {
			t.Errorf("%s does not mount the socket: %v", c.Name, c.VolumeMounts)
		}
	}
	want := map[string][]string{
		"csi-provisioner": {
			"--csi-address=/csi/csi.sock", "--leader-election", "--enable-capacity", "--strict-topology",
			"--immediate-topology=false", "--extra-create-metadata", "--capacity-ownerref-level=2",
			"--capacity-poll-interval=30s", "--capacity-threads=4", "--kube-api-qps=100", "--kube-api-burst=200",
			"--kube-api-capacity-qps=50", "--kube-api-capacity-burst=100", "--timeout=30s", "--retry-interval-max=1m",
			"--http-endpoint=:9894", "--v=2",
		},
		"csi-resizer": {
			"--csi-address=/csi/csi.sock", "--leader-election", "--handle-volume-inuse-error=false",
			"--feature-gates=VolumeAttributesClass=false", "--timeout=30s", "--http-endpoint=:9895", "--v=2",
		},
		"controller": {
			"--endpoint=unix:///csi/csi.sock", "--driver-name=kubevirt.io.hostpath-provisioner",
			"--topology-key=topology.hostpath.csi/node", "--config=/etc/hostpath-provisioner/config.yaml",
			"--state-dir=/var/lib/hostpath-provisioner-state", "--http-address=:9898",
			"--log-level=info", "--log-format=json",
			"--lease=" + controller, "--tunnel-address=:7443", "--serving-name=" + controller + ".storage.svc",
			"--certificates=self-managed",
			"--certificate-secret=" + controller + "-tls", "--controller-ca=" + controller + "-authorities",
			"--shared-pools=hpp-hostpath-provisioner-shared-pool-ids",
			"--moves=hpp-hostpath-provisioner-moves",
			"--node-service-account=hpp-hostpath-provisioner-csi",
			"--node-pods=app.kubernetes.io/component=csi-driver,app.kubernetes.io/instance=hpp," +
				"app.kubernetes.io/name=hostpath-provisioner",
			"--node-grace=60s", "--node-gone-after=10m",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers and their arguments (-want +got):\n%s", diff)
	}
	for name, want := range map[string][]string{
		"controller":      {"POD_NAME", "POD_NAMESPACE", "GOMEMLIMIT=483183820"},
		"csi-provisioner": {"NAMESPACE", "POD_NAME", "GOMEMLIMIT=966367641"},
		"csi-resizer":     {"GOMEMLIMIT=966367641"},
	} {
		if diff := cmp.Diff(want, environment(container(t, spec, name).Env)); diff != "" {
			t.Errorf("environment of %s (-want +got):\n%s", name, diff)
		}
	}
	writable := map[string]bool{}
	for _, volume := range spec.Volumes {
		if volume.HostPath != nil {
			t.Errorf("volume %s is the host's %s", volume.Name, volume.HostPath.Path)
		}
		writable[volume.Name] = volume.EmptyDir != nil
	}
	for _, mount := range container(t, spec, "controller").VolumeMounts {
		if mount.MountPath == "/var/lib/hostpath-provisioner-state" && !writable[mount.Name] {
			t.Errorf("it cannot make the socket of its commands: %v", spec.Volumes)
		}
	}
}

// TestControllerProbes: a sidecar's port opens only when the controller is ready, which may take as long as the nodes
// do.
func TestControllerProbes(t *testing.T) {
	t.Parallel()
	spec := controllerPod(t, snapshots(), controller).Spec
	sidecars := map[string]string{
		"csi-provisioner": "provisioner", "csi-resizer": "resizer", "csi-snapshotter": "snapshotter",
	}
	for name, port := range sidecars {
		c := container(t, spec, name)
		for what, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe} {
			if probe == nil || probe.HTTPGet.Path != "/healthz/leader-election" || probe.HTTPGet.Port.StrVal != port {
				t.Errorf("%s: %s probe %v", name, what, probe)
			}
		}
		if seconds := c.StartupProbe.PeriodSeconds * c.StartupProbe.FailureThreshold; seconds < 600 {
			t.Errorf("%s is killed after %d s without nodes", name, seconds)
		}
	}
	own := container(t, spec, "controller")
	if live, ready := own.LivenessProbe.HTTPGet, own.ReadinessProbe.HTTPGet; live.Path != "/healthz" ||
		ready.Path != "/readyz" || live.Port.StrVal != "http" || ready.Port.StrVal != "http" {
		t.Errorf("probes %v and %v, want /healthz and /readyz on the port http", live, ready)
	}
	off := controllerPod(t, helmcli.Values{Set: map[string]string{
		"sidecars.provisioner.httpPort": "0", "sidecars.resizer.httpPort": "0", "sidecars.snapshotter.httpPort": "0",
		"snapshots": "true",
	}}, controller).Spec
	for name := range sidecars {
		if c := container(t, off, name); len(c.Ports) > 0 || c.LivenessProbe != nil || c.StartupProbe != nil ||
			slices.ContainsFunc(c.Args, func(arg string) bool { return arg == "--http-endpoint=:0" }) {
			t.Errorf("%s without a port: %v %v", name, c.Ports, c.Args)
		}
	}
}

// TestControllerPassesRestricted: and OpenShift's restricted-v2 refuses a fixed user; elsewhere
// there has to be one, because the images start as root.
func TestControllerPassesRestricted(t *testing.T) {
	t.Parallel()
	for rendering, name := range map[string]string{
		"default": controller, "openshift": controller, "cert-manager": controller, "snapshots": controller,
		"everything": "storage-driver-controller",
	} {
		pod := controllerPod(t, renderings()[rendering], name)
		restricted(t, rendering, &pod.ObjectMeta, &pod.Spec)
		for _, c := range pod.Spec.Containers {
			if root := c.SecurityContext.ReadOnlyRootFilesystem; root == nil || !*root {
				t.Errorf("%s: the root filesystem of %s is writable", rendering, c.Name)
			}
		}
		user, group := pod.Spec.SecurityContext.RunAsUser, pod.Spec.SecurityContext.FSGroup
		scc := pod.Annotations["openshift.io/required-scc"]
		openshift := rendering == "openshift" || rendering == "everything"
		// the group reads the certificates
		if !openshift && (user == nil || *user == 0 || group == nil || scc != "") {
			t.Errorf("%s: user %v, group %v, required-scc %q; want a user, a group and no SCC", rendering, user, group,
				scc)
		}
		if openshift && (user != nil || group != nil || scc != "restricted-v2") {
			t.Errorf("%s: user %v, group %v, required-scc %q; want none and restricted-v2", rendering, user, group, scc)
		}
	}
}

// TestEveryValueReachesTheController: each value below controller, and below those of its sidecars, in
// testdata/everything.yaml is where it belongs.
func TestEveryValueReachesTheController(t *testing.T) {
	t.Parallel()
	const name = "storage-driver-controller"
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()["everything"]))
	deployment := helmcli.Find[*appsv1.Deployment](t, objects, name)
	pod := deployment.Spec.Template
	own, resizer := container(t, pod.Spec, "controller"), container(t, pod.Spec, "csi-resizer")
	provisioner, snapshotter := container(t, pod.Spec, "csi-provisioner"), container(t, pod.Spec, "csi-snapshotter")
	affinity := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	got := map[string]any{
		"replicas": *deployment.Spec.Replicas, "account": pod.Spec.ServiceAccountName,
		"priority": pod.Spec.PriorityClassName, "toleration": pod.Spec.Tolerations[0].Key,
		"selector":    pod.Spec.NodeSelector["control"],
		"pull secret": pod.Spec.ImagePullSecrets[0].Name, "annotation": pod.Annotations["example.com/pod"],
		"label": pod.Labels["example.com/pod"], "grace": *pod.Spec.TerminationGracePeriodSeconds,
		"affinity": affinity.NodeSelectorTerms[0].MatchExpressions[0].Key,
		"spread":   pod.Spec.TopologySpreadConstraints[0].TopologyKey,
		"account's annotation": helmcli.Find[*corev1.ServiceAccount](t, objects,
			"controller-account").Annotations["example.com/account"],
		"pull policies": []corev1.PullPolicy{
			own.ImagePullPolicy, provisioner.ImagePullPolicy, resizer.ImagePullPolicy, snapshotter.ImagePullPolicy,
		},
		"environment": slices.Concat(environment(own.Env), environment(provisioner.Env), environment(resizer.Env),
			environment(snapshotter.Env)),
		"memory": []string{
			own.Resources.Requests.Memory().String(), provisioner.Resources.Requests.Memory().String(),
			resizer.Resources.Requests.Memory().String(), snapshotter.Resources.Requests.Memory().String(),
		},
		"service": helmcli.Find[*corev1.Service](t, objects, name).Spec.Ports[0].Port,
		"drain":   helmcli.Find[*policyv1.PodDisruptionBudget](t, objects, name).Spec.MaxUnavailable.String(),
	}
	want := map[string]any{
		"replicas": int32(2), "account": "controller-account", "priority": "important", "toleration": "control",
		"selector": "yes", "pull secret": "pull-secret", "annotation": "controller's annotation",
		"label": "controllers-label", "grace": int64(45), "affinity": "virtual", "spread": "kubernetes.io/hostname",
		"account's annotation": "annotation",
		"pull policies":        slices.Repeat([]corev1.PullPolicy{corev1.PullAlways}, 4),
		"environment": []string{
			"POD_NAME", "POD_NAMESPACE", "GOMEMLIMIT=128MiB",
			"NAMESPACE", "POD_NAME", "GOMEMLIMIT=966367641", "GOGC=50", "GOMEMLIMIT=966367641", "GOGC=60",
			"GOMEMLIMIT=966367641", "GOGC=70",
		},
		"memory": []string{"72Mi", "96Mi", "48Mi", "56Mi"}, "service": int32(17443), "drain": "34%",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("controller (-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		container corev1.Container
		flags     []string
	}{
		{own, []string{
			"--lease=" + name, "--tunnel-address=:17443", "--serving-name=" + name + ".kube-storage.svc",
			"--certificates=openshift",
			"--certificate-secret=" + name + "-certificate", "--controller-ca=storage-driver-controller-service-ca",
			"--node-service-account=driver-account", "--node-grace=15s", "--node-gone-after=1h30m",
			"--state-dir=/data/state",
		}},
		{provisioner, []string{
			"--capacity-poll-interval=1m", "--kube-api-qps=11", "--kube-api-burst=12", "--kube-api-capacity-qps=13",
			"--kube-api-capacity-burst=14", "--http-endpoint=:19897", "--v=4",
		}},
		{resizer, []string{"--http-endpoint=:19895", "--v=5"}},
		{snapshotter, []string{"--http-endpoint=:19893", "--v=6"}},
	} {
		for _, flag := range test.flags {
			if !slices.Contains(test.container.Args, flag) {
				t.Errorf("%s lacks %s: %v", test.container.Name, flag, test.container.Args)
			}
		}
	}
	last := func(c corev1.Container) string { return c.Args[len(c.Args)-1] }
	if diff := cmp.Diff([]string{"--log-level=debug", "--worker-threads=10", "--workers=2", "--worker-threads=3"},
		[]string{last(own), last(provisioner), last(resizer), last(snapshotter)}); diff != "" {
		t.Errorf("flags of extraArgs, which come last (-want +got):\n%s", diff)
	}
}

// TestNodesFindTheController: what they dial is the Service, and each pod of it, ready or not.
func TestNodesFindTheController(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, helmcli.Values{}))
	got := helmcli.Find[*corev1.Service](t, objects, controller).Spec
	pod := controllerPod(t, helmcli.Values{}, controller)
	if got.ClusterIP != corev1.ClusterIPNone || !got.PublishNotReadyAddresses || !within(got.Selector, pod.Labels) {
		t.Errorf("Service %+v", got)
	}
	at := slices.IndexFunc(container(t, pod.Spec, "controller").Ports, func(p corev1.ContainerPort) bool {
		return p.Name == got.Ports[0].TargetPort.StrVal
	})
	if at < 0 || container(t, pod.Spec, "controller").Ports[at].ContainerPort != 7443 || got.Ports[0].Port != 7443 {
		t.Errorf("ports of the Service %v, of the pod %v", got.Ports, container(t, pod.Spec, "controller").Ports)
	}
	// One replica needs no budget: it would keep its node from being drained.
	for _, object := range objects {
		if _, is := object.(*policyv1.PodDisruptionBudget); is {
			t.Errorf("%s is rendered for one replica", object.GetName())
		}
	}
}

// TestControllerNetworkPolicy: nodes may come to the tunnel, those who scrape to the metrics.
func TestControllerNetworkPolicy(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, helmcli.Values{
		Set:  map[string]string{"networkPolicies.enabled": "true"},
		JSON: map[string]string{"networkPolicies.metricsFrom": `[{"namespaceSelector":{}}]`},
	}))
	policy := helmcli.Find[*networkingv1.NetworkPolicy](t, objects, controller)
	pod := controllerPod(t, helmcli.Values{}, controller)
	if !within(policy.Spec.PodSelector.MatchLabels, pod.Labels) {
		t.Errorf("the selector %v does not fit the pods", policy.Spec.PodSelector.MatchLabels)
	}
	tunnel := policy.Spec.Ingress[0]
	nodes := daemonSet(t, helmcli.Values{}).Spec.Template.Labels
	if len(tunnel.From) != 1 || tunnel.From[0].NamespaceSelector != nil ||
		!within(tunnel.From[0].PodSelector.MatchLabels, nodes) {
		t.Errorf("to the tunnel may come %v", tunnel.From)
	}
	scrape, probes := openPorts(policy)
	if diff := cmp.Diff([][]int32{{7443, 9898, 9894, 9895}, nil}, [][]int32{scrape, probes}); diff != "" {
		t.Errorf("ports for some, and for all (-want +got):\n%s", diff)
	}
	out := helmcli.Find[*networkingv1.NetworkPolicy](t, objects, driverMonitor).Spec.Egress[0]
	if len(out.To) != 1 || !within(out.To[0].PodSelector.MatchLabels, pod.Labels) || out.Ports[0].Port.IntVal != 7443 {
		t.Errorf("nodes may go to %v at %v", out.To, out.Ports)
	}
}

// TestClassesGrow unless they say otherwise.
func TestClassesGrow(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]bool{"": true, "true": true, "false": false} {
		values := helmcli.Values{}
		if set != "" {
			values.Set = map[string]string{
				"storageClasses[0].name": "hostpath-local", "storageClasses[0].allowVolumeExpansion": set,
			}
		}
		objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values))
		if got := *helmcli.Find[*storagev1.StorageClass](t, objects,
			"hostpath-local").AllowVolumeExpansion; got != want {
			t.Errorf("%q: allowVolumeExpansion %v, want %v", set, got, want)
		}
	}
}
