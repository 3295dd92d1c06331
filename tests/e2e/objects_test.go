package e2e

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podLabel marks the pods of features, for collecting their logs.
const podLabel = "app=e2e"

// dataDir is where pods see their volume.
const dataDir = "/data"

// claim describes a claim of a size such as "16Mi".
func (s *scene) claim(name, class, size string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			},
		},
	}
}

// pod describes a pod that runs selftest with args, on a volume at /data.
func (s *scene) pod(name string, volume corev1.VolumeSource, args ...string) *corev1.Pod {
	grace, noToken := int64(1), false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace, Labels: map[string]string{"app": "e2e"}},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyOnFailure,
			TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken:  &noToken,
			Containers: []corev1.Container{{
				Name:         "selftest",
				Image:        s.image("selftest"),
				Args:         args,
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: dataDir}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: volume}},
		},
	}
}

// on keeps a pod to a node. The scheduler still decides, as it does for users.
func on(node string, p *corev1.Pod) *corev1.Pod {
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	return anywhere(p)
}

// anywhere lets a pod run on the control plane too.
func anywhere(p *corev1.Pod) *corev1.Pod {
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return p
}

// claimed is the volume of a claim.
func claimed(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

// inline is a CSI inline ephemeral volume.
func inline(attributes map[string]string) corev1.VolumeSource {
	return corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driverName, VolumeAttributes: attributes}}
}

// Commands of selftest that several features use.
func writeData() []string { return []string{"write", dataDir + "/file", "--bytes", "1048576"} }

func checkData(sum string) []string { return []string{"checksum", dataDir + "/file", "--want", sum} }

func appendLines() []string { return []string{"append-loop", dataDir + "/lines"} }

// numbered makes a name for one of many.
func numbered(name string, i int) string { return fmt.Sprintf("%s-%02d", name, i) }
