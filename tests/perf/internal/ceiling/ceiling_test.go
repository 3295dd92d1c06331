package ceiling

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func realSet() *appsv1.DaemonSet {
	labels := map[string]string{installedBy: "hpp", "app.kubernetes.io/component": "csi-driver"}
	host := func(path string) corev1.VolumeSource {
		return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}
	}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "hpp-csi", Namespace: "hostpath-provisioner", UID: "of the real one"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					ServiceAccountName: "hpp-csi",
					Containers: []corev1.Container{
						{Name: "driver", Image: "ghcr.io/x/driver:1", Args: []string{
							"--endpoint=unix:///var/lib/kubelet/plugins/real.example/csi.sock", "--driver-name=real.example",
						}},
						{
							Name: "csi-provisioner", Image: "registry.k8s.io/csi-provisioner:v6.3.0",
							Args: []string{"--csi-address=/csi/csi.sock"},
						},
					},
					Volumes: []corev1.Volume{
						{Name: "socket-dir", VolumeSource: host("/var/lib/kubelet/plugins/real.example")},
						{Name: "kubelet-dir", VolumeSource: host("/var/lib/kubelet")},
						{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
					},
				},
			},
		},
	}
}

func TestCopy(t *testing.T) {
	real := realSet()
	set, err := Copy(real)
	if err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	if set.Name != name || set.Namespace != "hostpath-provisioner" || set.UID != "" {
		t.Errorf("metadata: %+v", set.ObjectMeta)
	}
	if set.Spec.Selector.MatchLabels[installedBy] != name || set.Spec.Template.Labels[installedBy] != name {
		t.Error("its selector would take the real driver's pods")
	}
	want := []string{"--endpoint=unix:///var/lib/kubelet/plugins/" + driver + "/csi.sock", "--driver-name=" + driver}
	if got := pod.Containers[0].Args; !slices.Equal(got, want) {
		t.Errorf("args %q, want %q", got, want)
	}
	if pod.Containers[0].Image != "docker.io/"+image ||
		pod.Containers[1].Image != "registry.k8s.io/csi-provisioner:v6.3.0" {
		t.Errorf("images %q and %q", pod.Containers[0].Image, pod.Containers[1].Image)
	}
	if got := pod.Volumes[0].HostPath.Path; got != "/var/lib/kubelet/plugins/"+driver {
		t.Errorf("socket directory %q", got)
	}
	if original := realSet(); real.Spec.Selector.MatchLabels[installedBy] != "hpp" ||
		real.Spec.Template.Spec.Containers[0].Args[1] != original.Spec.Template.Spec.Containers[0].Args[1] ||
		real.Spec.Template.Spec.Volumes[0].HostPath.Path != original.Spec.Template.Spec.Volumes[0].HostPath.Path {
		t.Error("the real DaemonSet was changed")
	}
}

func TestCopyRefusesAStranger(t *testing.T) {
	real := realSet()
	real.Spec.Template.Spec.Containers[0].Args = nil
	if _, err := Copy(real); err == nil {
		t.Error("a DaemonSet that is not the driver's was copied")
	}
}
