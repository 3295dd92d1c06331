package chart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	securityv1 "github.com/openshift/api/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// mounterValues are those that the operator sets for a pool on two nodes, one with a filesystem and one with a device.
func mounterValues() helmcli.Values {
	return helmcli.Values{
		JSON: map[string]string{
			"storagePools":    `[{"name":"local","path":"/srv/pool","pvcTemplate":{"accessModes":["ReadWriteOnce"]}}]`,
			"mounter.managed": "true",
			"mounter.mounts": `[{"pool":"local","path":"/srv/pool","node":"a","claim":"claim-a","block":false},` +
				`{"pool":"local","path":"/srv/pool","node":"b.example.com","claim":"claim-b","block":true,` +
				`"oncePod":true}]`,
			"driver.tolerations": `[{"key":"storage","operator":"Exists"}]`,
		},
		Set: map[string]string{"networkPolicies.enabled": "true", "openshift": "true"},
	}
}

// mounters are the Deployments by node.
func mounters(t *testing.T, objects []client.Object) map[string]*appsv1.Deployment {
	t.Helper()
	found := map[string]*appsv1.Deployment{}
	for _, object := range objects {
		if mounter, ok := object.(*appsv1.Deployment); ok && strings.Contains(mounter.Name, "-mounter-") {
			found[mounter.Annotations["hostpathprovisioner.kubevirt.io/node"]] = mounter
		}
	}
	return found
}

func TestMounters(t *testing.T) {
	t.Parallel()
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		objects := helmcli.Objects(t, helm.MustTemplate(t, mounterValues()))
		all := mounters(t, objects)
		if len(all) != 2 {
			t.Fatalf("%d mounters", len(all))
		}
		for node, want := range map[string]struct {
			args     []string
			mounts   []string
			devices  int
			strategy appsv1.DeploymentStrategy
		}{
			"a": {
				[]string{
					"--pool=local", "--path=/pool", "--source=/source", "--health-address=:9810", "--log-level=info",
				},
				[]string{"/pool", "/source"},
				0,
				appsv1.DeploymentStrategy{
					Type: appsv1.RollingUpdateDeploymentStrategyType,
					RollingUpdate: &appsv1.RollingUpdateDeployment{
						MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
					},
				},
			},
			"b.example.com": {[]string{
				"--pool=local", "--path=/pool", "--device=/dev/source", "--health-address=:9810",
				"--log-level=info",
			}, []string{"/pool"}, 1, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}},
		} {
			spec := all[node].Spec
			c := container(t, spec.Template.Spec, "mounter")
			var mounts []string
			for _, mount := range c.VolumeMounts {
				mounts = append(mounts, mount.MountPath)
			}
			if diff := cmp.Diff(want.args, c.Args); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.mounts, mounts); diff != "" || len(c.VolumeDevices) != want.devices ||
				*c.VolumeMounts[0].MountPropagation != corev1.MountPropagationBidirectional ||
				!*c.SecurityContext.Privileged {
				t.Errorf("devices %v, mounts (-want +got):\n%s", c.VolumeDevices, diff)
			}
			pool, source := spec.Template.Spec.Volumes[0], spec.Template.Spec.Volumes[1]
			if pool.HostPath.Path != "/srv/pool" || *pool.HostPath.Type != corev1.HostPathDirectoryOrCreate ||
				source.PersistentVolumeClaim.ClaimName != "claim-"+node[:1] {
				t.Errorf("volumes %+v", spec.Template.Spec.Volumes)
			}
			if diff := cmp.Diff(want.strategy, spec.Strategy); diff != "" || *spec.Replicas != 1 ||
				spec.Template.Spec.PriorityClassName != "system-node-critical" {
				t.Errorf("replicas %d, priority %q, strategy (-want +got):\n%s", *spec.Replicas,
					spec.Template.Spec.PriorityClassName, diff)
			}
		}
	})
}

// TestMountersOfOneClaim: all nodes mount it, and the driver has a shared pool. A device has one node only.
func TestMountersOfOneClaim(t *testing.T) {
	t.Parallel()
	values := func(block string) helmcli.Values {
		mount := func(node string) string {
			return `{"pool":"local","path":"/srv/pool","node":"` + node +
				`","claim":"hpp-pool-local-shared","block":` + block + `}`
		}
		return helmcli.Values{JSON: map[string]string{
			"storagePools": `[{"name":"local","path":"/srv/pool","scope":"shared",` +
				`"pvcTemplate":{"accessModes":["ReadWriteMany"]}}]`,
			"mounter.managed": "true", "mounter.mounts": "[" + mount("a") + "," + mount("b") + "]",
		}}
	}
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		objects := helmcli.Objects(t, helm.MustTemplate(t, values("false")))
		all := mounters(t, objects)
		for _, node := range []string{"a", "b"} {
			source := all[node].Spec.Template.Spec.Volumes[1]
			if source.PersistentVolumeClaim.ClaimName != "hpp-pool-local-shared" {
				t.Errorf("node %s mounts %+v", node, source)
			}
		}
		if len(all) != 2 || all["a"].Name == all["b"].Name {
			t.Errorf("%d mounters", len(all))
		}
		if _, err := helm.Template(t, values("true")); err == nil || !strings.Contains(err.Error(),
			`mounter.mounts: the claim "hpp-pool-local-shared" is a device, and on node "b" it would be `+
				`mounted a second time`) {
			t.Errorf("a device on two nodes: %v", err)
		}
	})
}

// TestMountersStayWhereVolumesAre: they tolerate what the driver's pods do by their values and global's, what the
// DaemonSet controller adds to those, and every NoExecute, as a pod that uses a volume may.
func TestMountersStayWhereVolumesAre(t *testing.T) {
	t.Parallel()
	values := mounterValues()
	values.JSON["global.tolerations"] = `[{"key":"dedicated","operator":"Exists"}]`
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values))
	var got []string
	for _, toleration := range mounters(t, objects)["a"].Spec.Template.Spec.Tolerations {
		if toleration.TolerationSeconds != nil || toleration.Operator != corev1.TolerationOpExists {
			t.Errorf("it leaves after a while, or tolerates one value: %+v", toleration)
		}
		got = append(got, toleration.Key+":"+string(toleration.Effect))
	}
	const node = "node.kubernetes.io/"
	want := []string{
		"storage:", "dedicated:", ":NoExecute", node + "disk-pressure:NoSchedule",
		node + "memory-pressure:NoSchedule", node + "pid-pressure:NoSchedule", node + "unschedulable:NoSchedule",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tolerations (-want +got):\n%s", diff)
	}
}

// TestMounterAccount may use the driver's constraint, claims included, and nothing else.
func TestMounterAccount(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, mounterValues()))
	account := helmcli.Find[*corev1.ServiceAccount](t, objects, "hpp-hostpath-provisioner-mounter")
	pod := mounters(t, objects)["a"].Spec.Template.Spec
	if *account.AutomountServiceAccountToken || *pod.AutomountServiceAccountToken ||
		pod.ServiceAccountName != account.Name {
		t.Errorf("account %+v of a pod with %q", account, pod.ServiceAccountName)
	}
	constraint := helmcli.Find[*securityv1.SecurityContextConstraints](t, objects, "hpp-hostpath-provisioner-csi")
	if diff := cmp.Diff([]securityv1.FSType{"configMap", "hostPath", "persistentVolumeClaim", "projected"},
		constraint.Volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
}
