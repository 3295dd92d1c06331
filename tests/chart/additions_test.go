package chart

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	securityv1 "github.com/openshift/api/security/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// withPods renders testdata/pods.yaml.
func withPods(t *testing.T, operator string) []client.Object {
	t.Helper()
	return helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, helmcli.Values{
		Files: []string{"testdata/pods.yaml"}, Set: map[string]string{"operator.enabled": operator},
	}))
}

// addedPods are the pods of testdata/pods.yaml by the name of their main container and their place in the values.
func addedPods(t *testing.T) map[[2]string]corev1.PodSpec {
	t.Helper()
	objects, operators := withPods(t, "false"), withPods(t, "true")
	return map[[2]string]corev1.PodSpec{
		{"driver", "driver"}:         helmcli.Find[*appsv1.DaemonSet](t, objects, driverMonitor).Spec.Template.Spec,
		{"controller", "controller"}: helmcli.Find[*appsv1.Deployment](t, objects, controller).Spec.Template.Spec,
		{"operator", "operator"}:     helmcli.Find[*appsv1.Deployment](t, operators, operator).Spec.Template.Spec,
	}
}

// TestUsersAddToPods: volumes, mounts, init containers; what they say of security and probes stands beside the chart's.
func TestUsersAddToPods(t *testing.T) {
	t.Parallel()
	for who, spec := range addedPods(t) {
		c := container(t, spec, who[0])
		volumes := map[string]bool{}
		for _, volume := range spec.Volumes {
			volumes[volume.Name] = true
		}
		mount := c.VolumeMounts[len(c.VolumeMounts)-1]
		if !volumes["more"] || !volumes["scratch"] || mount.Name != "more" || mount.MountPath != "/more" {
			t.Errorf("%s: volumes %v, mounts %v", who[1], spec.Volumes, c.VolumeMounts)
		}
		live, ready, start := c.LivenessProbe, c.ReadinessProbe, c.StartupProbe
		got := map[string]any{
			"init": spec.InitContainers[0].Name, "groups": spec.SecurityContext.SupplementalGroups,
			"root": *c.SecurityContext.ReadOnlyRootFilesystem, "privileged": c.SecurityContext.Privileged != nil,
			"live":  []any{live.InitialDelaySeconds, live.PeriodSeconds, *live.TerminationGracePeriodSeconds},
			"ready": []any{ready.PeriodSeconds, ready.TimeoutSeconds, ready.SuccessThreshold, ready.HTTPGet.Path},
			"start": []any{start.FailureThreshold, start.HTTPGet.Path == live.HTTPGet.Path, start.HTTPGet.Port},
		}
		want := map[string]any{
			"init": "first", "groups": []int64{1000680000}, "root": false, "privileged": who[1] == "driver",
			"live": []any{int32(0), int32(10), int64(5)}, "ready": []any{int32(7), int32(3), int32(2), "/readyz"},
			"start": []any{int32(90), true, live.HTTPGet.Port},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: pod (-want +got):\n%s", who[1], diff)
		}
	}
}

// TestConstraintsAllowWhatUsersAdd: else no pod of the driver would start on OpenShift.
func TestConstraintsAllowWhatUsersAdd(t *testing.T) {
	t.Parallel()
	scc := helmcli.Find[*securityv1.SecurityContextConstraints](t, withPods(t, "false"), driverMonitor)
	want := []securityv1.FSType{
		securityv1.FSTypeConfigMap, securityv1.FSTypeCSI, securityv1.FSTypeEmptyDir, securityv1.FSTypeHostPath,
		securityv1.FSTypePersistentVolumeClaim, securityv1.FSProjected,
	}
	if diff := cmp.Diff(want, scc.Volumes); diff != "" || scc.ReadOnlyRootFilesystem {
		t.Errorf("demands a read-only root %v; volumes (-want +got):\n%s", scc.ReadOnlyRootFilesystem, diff)
	}
}

// TestEveryContainerTakesEnvironment of the user's.
func TestEveryContainerTakesEnvironment(t *testing.T) {
	t.Parallel()
	var with []string
	for _, object := range withPods(t, "false") {
		var spec corev1.PodSpec
		switch typed := object.(type) {
		case *appsv1.DaemonSet:
			spec = typed.Spec.Template.Spec
		case *appsv1.Deployment:
			spec = typed.Spec.Template.Spec
		case *corev1.Pod:
			spec = typed.Spec
		}
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			if slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == "MORE" && v.Value == "yes" }) {
				with = append(with, c.Name)
			}
		}
	}
	want := []string{"liveness-probe", "mounter", "node-driver-registrar", "read", "write"}
	if diff := cmp.Diff(want, sorted(with)); diff != "" {
		t.Errorf("containers with the variable (-want +got):\n%s", diff)
	}
}

// TestNamesOfPodsAreTaken: each volume and container that the chart renders is refused as the name of another.
func TestNamesOfPodsAreTaken(t *testing.T) {
	t.Parallel()
	everything, operators := renderings()["everything"], renderings()["operator, everything"]
	for who, spec := range map[string]corev1.PodSpec{
		"driver":     daemonSet(t, everything).Spec.Template.Spec,
		"controller": controllerPod(t, everything, "storage-driver-controller").Spec,
		"operator":   controllerPod(t, operators, "storage-driver-operator").Spec,
	} {
		var volumes, containers []map[string]any
		var want []string
		for i, volume := range spec.Volumes {
			volumes = append(volumes, map[string]any{"name": volume.Name})
			want = append(want,
				fmt.Sprintf("%s.extraVolumes[%d]: there is another volume %q in the pod", who, i, volume.Name))
		}
		for i, c := range spec.Containers {
			containers = append(containers, map[string]any{"name": c.Name})
			want = append(want,
				fmt.Sprintf("%s.initContainers[%d]: there is another container %q in the pod", who, i, c.Name))
		}
		expectRefusals(t, helmsdk.Newest(), map[string]refusal{who: {json: map[string]string{
			who + ".extraVolumes": encoded(t, volumes), who + ".initContainers": encoded(t, containers),
		}, want: want}})
	}
}

func encoded(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(data), "null", "[]")
}

func TestImpossiblePodsAreRefused(t *testing.T) {
	t.Parallel()
	const noRoot = "the driver has to be root, who owns the volumes' directories; remove runAsUser and runAsNonRoot."
	const noMounts = "driver.securityContext: Kubernetes lets only a privileged container mount volumes for pods; " +
		"remove privileged and allowPrivilegeEscalation."
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		refusals := map[string]refusal{
			"unprivileged": {json: set("driver.securityContext.privileged", "false"), want: []string{noMounts}},
			"no escalation": {
				json: set("driver.securityContext.allowPrivilegeEscalation", "false"), want: []string{noMounts},
			},
			"a user":      {json: set("driver.securityContext.runAsUser", "1000680000"), want: []string{noRoot}},
			"no root":     {json: set("driver.securityContext.runAsNonRoot", "true"), want: []string{noRoot}},
			"no root pod": {json: set("driver.podSecurityContext.runAsNonRoot", "true"), want: []string{noRoot}},
			"environment": {set: set("mounter.extraEnv", "a"), want: []string{"/mounter/extraEnv", "array"}},
		}
		for _, who := range []string{"driver", "controller", "operator"} {
			place := "/" + who + "/"
			for name, wrong := range map[string]refusal{
				"volume without a name": {
					json: set(who+".extraVolumes", `[{"emptyDir":{}}]`),
					want: []string{place + "extraVolumes/0", "'name'"},
				},
				"mount without a path": {
					json: set(who+".extraVolumeMounts", `[{"name":"a"}]`),
					want: []string{place + "extraVolumeMounts/0", "'mountPath'"},
				},
				"mount of nothing": {
					json: set(who+".extraVolumeMounts", `[{"name":"a","mountPath":"/a"}]`),
					want: []string{
						who + `.extraVolumeMounts[0]: there is no volume "a" in the pod; add it to ` + who +
							".extraVolumes.",
					},
				},
				"init container as a map": {
					json: set(who+".initContainers", `{}`), want: []string{place + "initContainers"},
				},
				"context as text": {
					set: set(who+".securityContext", "root"), want: []string{place + "securityContext"},
				},
				"pod context as text": {
					set: set(who+".podSecurityContext", "root"), want: []string{place + "podSecurityContext"},
				},
				"another question": {
					json: set(who+".livenessProbe.httpGet", "{}"), want: []string{place + "livenessProbe", "'httpGet'"},
				},
				"time as text": {
					set: set(who+".readinessProbe.periodSeconds", "5s"), want: []string{place + "readinessProbe"},
				},
				"never started": {
					json: set(who+".startupProbe.failureThreshold", "0"), want: []string{place + "startupProbe"},
				},
			} {
				refusals[who+": "+name] = wrong
			}
		}
		for _, who := range []string{"controller", "operator"} {
			refusals[who+": root"] = refusal{json: set(who+".podSecurityContext.runAsUser", "0"), want: []string{
				who + ": runAsUser is 0, and runAsNonRoot is true; the kubelet starts no such container.",
			}}
			refusals[who+": privileged"] = refusal{json: set(who+".securityContext.privileged", "true"), want: []string{
				who + ".securityContext: a privileged container needs allowPrivilegeEscalation too; remove privileged",
			}}
		}
		expectRefusals(t, helm, refusals)
	})
}
