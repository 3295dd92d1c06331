package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// daemonSet renders the driver's DaemonSet.
func daemonSet(t *testing.T, values helmcli.Values) *appsv1.DaemonSet {
	t.Helper()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values))
	for _, object := range objects {
		if ds, ok := object.(*appsv1.DaemonSet); ok {
			return ds
		}
	}
	t.Fatalf("no DaemonSet among %v", helmcli.Ids(objects))
	return nil
}

// container gives the container of that name.
func container(t *testing.T, spec corev1.PodSpec, name string) corev1.Container {
	t.Helper()
	index := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	if index < 0 {
		t.Fatalf("no container %q", name)
	}
	return spec.Containers[index]
}

// affinityKey is the key of the first node label that an affinity asks for.
func affinityKey(affinity *corev1.Affinity) string {
	required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return required.NodeSelectorTerms[0].MatchExpressions[0].Key
}

func TestContainersAndArguments(t *testing.T) {
	t.Parallel()
	spec := daemonSet(t, helmcli.Values{}).Spec.Template.Spec
	want := map[string][]string{
		"driver": {
			"--endpoint=unix:///var/lib/kubelet/plugins/kubevirt.io.hostpath-provisioner/csi.sock",
			"--driver-name=kubevirt.io.hostpath-provisioner", "--topology-key=topology.hostpath.csi/node",
			"--config=/etc/hostpath-provisioner/config.yaml", "--state-dir=/var/lib/hostpath-provisioner-state",
			"--host-root=/host", "--kubelet-dir=/var/lib/kubelet", "--http-address=:9898", "--log-level=info",
			"--log-format=json", "--controller=" + controller + ".storage.svc:7443",
			"--controller-ca=" + controller + "-authorities",
			"--controller-token=/var/run/secrets/hostpath-provisioner/token",
			"--daemon-set=hpp-hostpath-provisioner-csi",
			"--copy-bytes-per-second=0",
		},
	}
	got := map[string][]string{}
	for _, c := range spec.Containers {
		got[c.Name] = c.Args
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers and their arguments (-want +got):\n%s", diff)
	}
}

// TestEveryValueReachesThePod: each value of testdata/everything.yaml that concerns the pod is in it.
func TestEveryValueReachesThePod(t *testing.T) {
	t.Parallel()
	ds := daemonSet(t, renderings()["everything"])
	spec := ds.Spec.Template.Spec
	driver := container(t, spec, "driver")
	type facts struct {
		Account, Priority, Strategy, Annotation, Label, Checksum, SCC string
		Selector                                                      map[string]string
		PullSecret, Toleration, Affinity, PullPolicy                  string
		Grace                                                         int64
		History                                                       int32
		Port, LivenessPort                                            int32
		Env, LastArg                                                  string
	}
	got := facts{
		Account: spec.ServiceAccountName, Priority: spec.PriorityClassName,
		Strategy:   ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String(),
		Annotation: ds.Spec.Template.Annotations["example.com/pod"], Label: ds.Spec.Template.Labels["example.com/pod"],
		SCC: ds.Spec.Template.Annotations["openshift.io/required-scc"], Selector: spec.NodeSelector,
		PullSecret: spec.ImagePullSecrets[0].Name, Toleration: spec.Tolerations[0].Key,
		Affinity:   affinityKey(spec.Affinity),
		PullPolicy: string(driver.ImagePullPolicy), Grace: *spec.TerminationGracePeriodSeconds,
		History: *ds.Spec.RevisionHistoryLimit,
		Port:    driver.Ports[0].ContainerPort, LivenessPort: driver.LivenessProbe.HTTPGet.Port.IntVal,
		Env: driver.Env[len(driver.Env)-1].Name, LastArg: driver.Args[len(driver.Args)-1],
	}
	want := facts{
		Account: "driver-account", Priority: "important", Strategy: "1", Annotation: "annotation", Label: "label",
		SCC: "storage-driver-csi", Selector: map[string]string{"kubernetes.io/os": "linux", "storage": "yes"},
		PullSecret: "pull-secret", Toleration: "dedicated", Affinity: "virtual", PullPolicy: "Always", Grace: 60,
		History: 2, Port: 19898, LivenessPort: 9899, Env: "GOMEMLIMIT", LastArg: "--log-level=debug",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

// TestMounts: what the driver sees of the host, and how.
func TestMounts(t *testing.T) {
	t.Parallel()
	spec := daemonSet(t, helmcli.Values{}).Spec.Template.Spec
	sources := map[string]string{}
	for _, volume := range spec.Volumes {
		if volume.HostPath != nil {
			sources[volume.Name] = volume.HostPath.Path + " " + string(*volume.HostPath.Type)
		}
	}
	got := map[string]string{}
	for _, c := range spec.Containers {
		for _, mount := range c.VolumeMounts {
			propagation := ""
			if mount.MountPropagation != nil {
				propagation = " " + string(*mount.MountPropagation)
			}
			got[c.Name+" "+mount.MountPath] = sources[mount.Name] + propagation
		}
	}
	want := map[string]string{
		"driver /etc/hostpath-provisioner":             "",
		"driver /host":                                 "/ Directory HostToContainer",
		"driver /var/lib/kubelet":                      "/var/lib/kubelet Directory Bidirectional",
		"driver /var/lib/hostpath-provisioner-state":   "/var/lib/hostpath-provisioner-state DirectoryOrCreate",
		"driver /var/run/secrets/hostpath-provisioner": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}

// TestNodesShowATokenOfTheirOwn: for the controller alone, and short-lived.
func TestNodesShowATokenOfTheirOwn(t *testing.T) {
	t.Parallel()
	spec := daemonSet(t, helmcli.Values{}).Spec.Template.Spec
	at := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Projected != nil })
	if at < 0 {
		t.Fatalf("no projected volume among %v", spec.Volumes)
	}
	want := []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
		Audience: "hostpath-provisioner-controller", ExpirationSeconds: new(int64(3600)), Path: "token",
	}}}
	if diff := cmp.Diff(want, spec.Volumes[at].Projected.Sources); diff != "" {
		t.Errorf("token (-want +got):\n%s", diff)
	}
	if mounts := container(t, spec, "driver").VolumeMounts; !slices.ContainsFunc(mounts,
		func(m corev1.VolumeMount) bool {
			return m.Name == spec.Volumes[at].Name && m.MountPath == "/var/run/secrets/hostpath-provisioner"
		}) {
		t.Errorf("the driver mounts %v", mounts)
	}
}

// TestOnlyTheDriverIsPrivileged, with every container that the chart knows.
func TestOnlyTheDriverIsPrivileged(t *testing.T) {
	t.Parallel()
	for _, c := range daemonSet(t, renderings()["everything"]).Spec.Template.Spec.Containers {
		security := c.SecurityContext
		if security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem {
			t.Errorf("%s: its root filesystem is writable", c.Name)
		}
		if c.Name == "driver" {
			continue
		}
		if security.Privileged == nil || *security.Privileged || *security.AllowPrivilegeEscalation {
			t.Errorf("%s: privileged or may become so", c.Name)
		}
		if !slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(security.Capabilities.Add) > 0 {
			t.Errorf("%s: capabilities %+v, want all dropped", c.Name, security.Capabilities)
		}
		if security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: seccomp %s", c.Name, security.SeccompProfile.Type)
		}
		if security.SELinuxOptions.Type != "spc_t" {
			t.Errorf("%s: SELinux type %q, want spc_t: else an enforcing node keeps it from the socket",
				c.Name, security.SELinuxOptions.Type)
		}
	}
}

// restricted asks the code behind Pod Security Admission whether a pod passes the profile of that name.
func restricted(t *testing.T, what string, meta *metav1.ObjectMeta, spec *corev1.PodSpec) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for _, result := range evaluator.EvaluatePod(level, meta, spec) {
		if !result.Allowed {
			t.Errorf("%s: %s: %s", what, result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
}

func TestSelfTestPassesRestricted(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"default", "two pools", "openshift"} {
		count := 0
		for _, object := range helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()[name])) {
			pod, ok := object.(*corev1.Pod)
			if !ok {
				continue
			}
			count++
			restricted(t, name+": pod "+pod.Name, &pod.ObjectMeta, &pod.Spec)
		}
		if count == 0 {
			t.Errorf("%s: no self-test pod", name)
		}
	}
}

// TestSelfTestCoversClasses: one pod per class that deletes its volumes, never one whose volume would stay.
func TestSelfTestCoversClasses(t *testing.T) {
	t.Parallel()
	var got []string
	for _, object := range helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()["two pools"])) {
		if pod, ok := object.(*corev1.Pod); ok {
			claim := pod.Spec.Volumes[0].Ephemeral.VolumeClaimTemplate.Spec
			got = append(got, pod.Annotations["helm.sh/hook"]+" "+*claim.StorageClassName)
		}
	}
	if diff := cmp.Diff([]string{"test two-pools-fast", "test two-pools-slow"}, got); diff != "" {
		t.Errorf("hook and class of the self-test pods (-want +got):\n%s", diff)
	}
}

// TestImages: the global registry takes the host's place only, a digest is appended, and nothing comes from elsewhere.
func TestImages(t *testing.T) {
	t.Parallel()
	want := []string{
		"mirror.example.com/hub/hostpath-provisioner/driver:1.10@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"mirror.example.com/hub/hostpath-provisioner/controller:1.11",
		"mirror.example.com/hub/sig-storage/csi-provisioner:v6.3.0",
		"mirror.example.com/hub/sig-storage/csi-resizer:v2.3.0",
		"mirror.example.com/hub/sig-storage/csi-snapshotter:v8.7.0",
		"mirror.example.com/hub/sig-storage/csi-node-driver-registrar:v2.17.0",
		"mirror.example.com/hub/sig-storage/livenessprobe:v2.19.0",
		"mirror.example.com/hub/hostpath-provisioner/selftest:" + helmcli.Chart(t).AppVersion,
	}
	if diff := cmp.Diff(sorted(want), images(t, renderings()["everything"])); diff != "" {
		t.Errorf("images behind a mirror (-want +got):\n%s", diff)
	}
}

// images are all images of a rendering, sorted, each once.
func images(t *testing.T, values helmcli.Values) []string {
	t.Helper()
	var all []string
	for line := range strings.SplitSeq(helmsdk.Newest().MustTemplate(t, values), "\n") {
		if _, image, found := strings.Cut(line, " image: "); found {
			all = append(all, strings.TrimSpace(image))
		}
	}
	return sorted(all)
}

func sorted(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

// TestConfigChangesRollThePods: the driver reads its configuration once.
func TestConfigChangesRollThePods(t *testing.T) {
	t.Parallel()
	const checksum = "checksum/config"
	before := daemonSet(t, helmcli.Values{}).Spec.Template.Annotations[checksum]
	same := daemonSet(t,
		helmcli.Values{Set: map[string]string{"driver.podLabels.a": "b"}}).Spec.Template.Annotations[checksum]
	after := daemonSet(t, helmcli.Values{Set: map[string]string{
		"storagePools[0].name": "local", "storagePools[0].path": "/elsewhere",
	}}).Spec.Template.Annotations[checksum]
	if before == "" || before != same || before == after {
		t.Errorf("checksums %q, unrelated change %q, other path %q: want the first two equal and the third not",
			before, same, after)
	}
}
