package chart

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// resizer is the full name of csi-resizer's objects in a rendering without a name of its own.
const resizer = "hpp-hostpath-provisioner-csi-resizer"

func resizerPod(t *testing.T, values helmcli.Values, name string) corev1.PodTemplateSpec {
	t.Helper()
	return helmcli.Find[*appsv1.Deployment](t, helmcli.Objects(t, helmcli.Newest(t).MustTemplate(t, values)),
		name).Spec.Template
}

// TestResizerArguments: csi-resizer and the driver in controller mode meet at a socket that only they have.
func TestResizerArguments(t *testing.T) {
	spec := resizerPod(t, helmcli.Values{}, resizer).Spec
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
		"csi-resizer": {
			"--csi-address=/csi/csi.sock", "--leader-election", "--handle-volume-inuse-error=false",
			"--feature-gates=VolumeAttributesClass=false",
			"--http-endpoint=:9895", "--v=2",
		},
		"driver": {
			"--mode=controller", "--endpoint=unix:///csi/csi.sock", "--driver-name=kubevirt.io.hostpath-provisioner",
			"--topology-key=topology.hostpath.csi/node", "--config=/etc/hostpath-provisioner/config.yaml",
			"--http-address=:9898",
			"--log-level=info", "--log-format=json",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers and their arguments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"NODE_NAME", "POD_NAMESPACE"},
		environment(container(t, spec, "driver").Env)); diff != "" {
		t.Errorf("the driver's environment (-want +got):\n%s", diff)
	}
	for _, volume := range spec.Volumes {
		if volume.HostPath != nil {
			t.Errorf("volume %s is the host's %s", volume.Name, volume.HostPath.Path)
		}
	}
}

// TestResizerPassesRestricted: and OpenShift's restricted-v2 refuses a fixed user; elsewhere
// there has to be one, because the images start as root.
func TestResizerPassesRestricted(t *testing.T) {
	for rendering, name := range map[string]string{
		"default": resizer, "openshift": resizer, "everything": "storage-driver-csi-resizer",
	} {
		pod := resizerPod(t, renderings()[rendering], name)
		restricted(t, rendering, &pod.ObjectMeta, &pod.Spec)
		for _, c := range pod.Spec.Containers {
			if root := c.SecurityContext.ReadOnlyRootFilesystem; root == nil || !*root {
				t.Errorf("%s: the root filesystem of %s is writable", rendering, c.Name)
			}
		}
		user, group := pod.Spec.SecurityContext.RunAsUser, pod.Spec.SecurityContext.FSGroup
		scc := pod.Annotations["openshift.io/required-scc"]
		// the group reads the certificate of the metrics
		if rendering == "default" && (user == nil || *user == 0 || group == nil || scc != "") {
			t.Errorf("%s: user %v, group %v, required-scc %q; want a user, a group and no SCC", rendering, user, group, scc)
		}
		// everything.yaml is for OpenShift
		if rendering != "default" && (user != nil || group != nil || scc != "restricted-v2") {
			t.Errorf("%s: user %v, group %v, required-scc %q; want none and restricted-v2", rendering, user, group, scc)
		}
	}
}

// TestEveryValueReachesTheResizer: each value below sidecars.resizer in testdata/everything.yaml is where it belongs.
func TestEveryValueReachesTheResizer(t *testing.T) {
	const name = "storage-driver-csi-resizer"
	objects := helmcli.Objects(t, helmcli.Newest(t).MustTemplate(t, renderings()["everything"]))
	deployment := helmcli.Find[*appsv1.Deployment](t, objects, name)
	pod := deployment.Spec.Template
	sidecar := container(t, pod.Spec, "csi-resizer")
	got := map[string]any{
		"replicas": *deployment.Spec.Replicas, "pull policy": sidecar.ImagePullPolicy, "env": environment(sidecar.Env),
		"port":  sidecar.Ports[0].ContainerPort,
		"probe": sidecar.LivenessProbe.HTTPGet.Path, "memory": sidecar.Resources.Requests.Memory().String(),
		"account":  pod.Spec.ServiceAccountName,
		"priority": pod.Spec.PriorityClassName, "toleration": pod.Spec.Tolerations[0].Key,
		"selector":    pod.Spec.NodeSelector["control"],
		"pull secret": pod.Spec.ImagePullSecrets[0].Name, "annotation": pod.Annotations["example.com/pod"],
		"label":    pod.Labels["example.com/pod"],
		"affinity": pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Key,
		"spread":   pod.Spec.TopologySpreadConstraints[0].TopologyKey,
		"flags":    sidecar.Args[len(sidecar.Args)-3:],
		"account's annotation": helmcli.Find[*corev1.ServiceAccount](t, objects,
			"resizer-account").Annotations["example.com/account"],
	}
	want := map[string]any{
		"replicas": int32(2), "pull policy": corev1.PullAlways, "env": []string{"GOGC=60"}, "port": int32(19895),
		"probe":  "/healthz/leader-election",
		"memory": "48Mi", "account": "resizer-account", "priority": "important", "toleration": "control", "selector": "yes",
		"pull secret": "pull-secret",
		"annotation":  "resizer's annotation", "label": "resizers-label", "affinity": "virtual",
		"spread": "kubernetes.io/hostname",
		"flags":  []string{"--http-endpoint=:19895", "--v=5", "--workers=2"}, "account's annotation": "annotation",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resizer (-want +got):\n%s", diff)
	}
	policy := helmcli.Find[*networkingv1.NetworkPolicy](t, objects, name)
	if !within(policy.Spec.PodSelector.MatchLabels, pod.Labels) {
		t.Errorf("the NetworkPolicy's selector %v does not fit the pods", policy.Spec.PodSelector.MatchLabels)
	}
	scrape, probes := openPorts(policy)
	if diff := cmp.Diff([][]int32{{19896, 19895}, {19898}}, [][]int32{scrape, probes}); diff != "" {
		t.Errorf("ports to scrape, and to probe (-want +got):\n%s", diff)
	}
}

// TestClassesGrow unless there is no resizer, or the class says otherwise.
func TestClassesGrow(t *testing.T) {
	for name, c := range map[string]struct {
		set  map[string]string
		want bool
	}{
		"default":    {want: true},
		"no resizer": {set: map[string]string{"sidecars.resizer.enabled": "false"}},
		"not allowed": {set: map[string]string{
			"storageClasses[0].name": "hostpath-local", "storageClasses[0].allowVolumeExpansion": "false",
		}},
		"allowed": {set: map[string]string{
			"storageClasses[0].name": "hostpath-local", "storageClasses[0].allowVolumeExpansion": "true",
		}, want: true},
	} {
		objects := helmcli.Objects(t, helmcli.Newest(t).MustTemplate(t, helmcli.Values{Set: c.set}))
		if got := *helmcli.Find[*storagev1.StorageClass](t, objects, "hostpath-local").AllowVolumeExpansion; got != c.want {
			t.Errorf("%s: allowVolumeExpansion %v, want %v", name, got, c.want)
		}
		for _, object := range objects {
			if name == "no resizer" && object.GetLabels()["app.kubernetes.io/component"] == "csi-resizer" {
				t.Errorf("%s: %s is rendered", name, object.GetName())
			}
		}
	}
}

// TestControllerTakesWhatTheChartWrites starts the built driver with the flags and the
// configuration of csi-resizer's pod.
func TestControllerTakesWhatTheChartWrites(t *testing.T) {
	dir, address := t.TempDir(), freeAddress(t)
	values := renderings()["two pools"]
	values.Set = map[string]string{"driver.metricsTLS.enabled": "true", "driver.metricsTLS.secretName": "mine"}
	objects := helmcli.Objects(t, helmcli.Newest(t).MustTemplate(t, values))
	pod := helmcli.Find[*appsv1.Deployment](t, objects, resizer).Spec.Template.Spec
	files := map[string]string{
		"config.yaml": helmcli.Find[*corev1.ConfigMap](t, objects, daemonSet(t, values).Name).Data["config.yaml"],
		"kubeconfig": `{"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],` +
			`"contexts":[{"name":"x","context":{"cluster":"c"}}],"current-context":"x"}`,
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--kubeconfig=" + filepath.Join(dir, "kubeconfig")}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: writeCertificate(t, dir)}}}
	for _, argument := range container(t, pod, "driver").Args {
		switch name, _, _ := strings.Cut(argument, "="); name {
		case "--endpoint":
			argument = name + "=unix://" + filepath.Join(dir, "csi.sock")
		case "--config":
			argument = name + "=" + filepath.Join(dir, "config.yaml")
		case "--http-address":
			argument = name + "=" + address
		}
		args = append(args, argument)
	}
	runUntil(t, client, "https://"+overTLS(t, dir, args)+"/metrics", []string{"go_goroutines"}, buildDriver(t), args...)
}
