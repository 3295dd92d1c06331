package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// refused is a class or a claim that must not provision anything, and what
// the claim's event has to name.
type refused struct {
	name       string
	parameters string // of the class, as YAML flow
	options    string
	change     func(*corev1.PersistentVolumeClaim)
	words      []string
	// unscheduled says that the pod's event says it, for the claim has none.
	unscheduled bool
}

func TestBadInputIsRefused(t *testing.T) {
	node := world.workers[0]
	block := corev1.PersistentVolumeBlock
	cases := []refused{
		{
			name: "misspelt-parameter", parameters: "{storagePool: local, storagPool: second}",
			words: []string{"storagPool"},
		},
		// No node has capacity for these, so the scheduler is the one to say so.
		{
			name: "unknown-pool", parameters: "{storagePool: nowhere}", unscheduled: true,
			words: []string{"free storage"},
		},
		{name: "missing-pool", parameters: "{}", unscheduled: true, words: []string{"free storage"}},
		{
			name: "bad-mode", parameters: `{storagePool: local, directoryMode: "999"}`,
			words: []string{"directoryMode", "999"},
		},
		{
			name: "unknown-mount-option", parameters: "{storagePool: local}", options: "[noatime, nofoo]",
			words: []string{"nofoo"},
		},
		{
			name: "block-volume", parameters: "{storagePool: local}", words: []string{"block volumes"},
			change: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block },
		},
		{
			name: "many-writers", parameters: "{storagePool: local}", words: []string{"access_mode"},
			change: func(c *corev1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
			},
		},
	}
	var steps []step
	for _, r := range cases {
		steps = append(steps, step{r.name, func(s *scene) { s.refuses(node, r) }})
	}
	steps = append(steps, step{"NothingHalfMadeStays", func(s *scene) {
		for _, r := range cases {
			c := s.claim(r.name, "", "0")
			s.must(s.api.Get(s.ctx, r.name, s.namespace, c))
			if id := "pvc-" + string(c.UID); s.exists(node, volumePath(poolLocal, id)) ||
				s.exists(node, pathOf(poolLocal)+"/csi/.hpp/staging/"+id) {
				s.t.Errorf("%s: a directory was made", r.name)
			}
		}
	}})
	parallel(t, "bad classes and claims are refused with a sentence that names the field", steps...)
}

func (s *scene) refuses(node string, r refused) {
	s.t.Helper()
	name := s.namespace + "-" + r.name
	options := r.options
	if options == "" {
		options = "[]"
	}
	s.apply("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: " + name +
		"}\nprovisioner: " + driverName + "\nvolumeBindingMode: WaitForFirstConsumer\nparameters: " + r.parameters +
		"\nmountOptions: " + options + "\n")
	s.deleteWhenDone("storageclass", name)
	c := s.claim(r.name, name, "16Mi")
	if r.change != nil {
		r.change(c)
	}
	s.create(c)
	p := on(node, s.pod(r.name, claimed(r.name), writeData()...))
	if c.Spec.VolumeMode != nil {
		p.Spec.Containers[0].VolumeMounts = nil
		p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	}
	s.create(p)
	if r.unscheduled {
		s.said("Pod", r.name, "FailedScheduling", r.words...)
		return
	}
	s.said("PersistentVolumeClaim", r.name, "ProvisioningFailed", r.words...)
}
