// Package adminroles_test has people use the roles that the chart makes for them, on a real API server: what each may,
// and where its admission policies hold it.
package adminroles_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

// What the policies say.
const (
	only     = "whoever may not create pods in this namespace "
	inPod    = only + "runs commands only in the container controller of the controller's pods"
	noInput  = only + "runs commands without input and terminal"
	listed   = only + "runs only /controller status, volume, pool, work, node, move, directory"
	movers   = "only who may delete PersistentVolumes runs /controller move, directory"
	itself   = only + "asks the controller itself, without --state-dir"
	ourKind  = "whoever may not delete PersistentVolumes makes only those of the driver " + names.Driver
	foreign  = "other.example.com"
	hostPath = "hostPath"
)

func TestAdminRoles(t *testing.T) {
	w := install(t)
	t.Run("rights", func(t *testing.T) { rights(t, w) })
	harness.Eventually(t, "the API server knows the policies", func(ctx context.Context) error {
		volume := w.create(ctx, "operator", hostPath)
		if errors.Is(w.exec(ctx, "operator", here(driverPod, "driver", "sh")), errReached) || volume == nil {
			return errors.New("it takes anything")
		}
		return nil
	})
	t.Run("refused", func(t *testing.T) { refused(t, w) })
	t.Run("run", func(t *testing.T) { reached(t, w) })
	t.Run("volumes", func(t *testing.T) { volumes(t, w) })
}

// rights: each role has what it is for, the larger what the smaller has, and nobody anything else.
func rights(t *testing.T, w *world) {
	roles := []string{"viewer", "operator", "mover"}
	const nobody = 3
	const reads, cluster = "get list watch", ""
	for _, right := range []struct {
		least                             int // index of the first role that has it
		namespace, verbs, group, resource string
	}{
		{0, cluster, reads, "", "persistentvolumeclaims persistentvolumes pods nodes events"},
		{0, cluster, reads, "storage.k8s.io", "storageclasses csistoragecapacities csinodes csidrivers"},
		{
			0, cluster, reads, "snapshot.storage.k8s.io",
			"volumesnapshots volumesnapshotcontents volumesnapshotclasses",
		},
		{1, cluster, "create", "", "persistentvolumes persistentvolumeclaims"},
		{1, harness.Namespace, "get create", "", "pods/exec"},
		{2, cluster, "patch delete", "", "persistentvolumes persistentvolumeclaims"},
		{2, cluster, "create", "", "pods/eviction"},
		{2, cluster, "delete", "", "pods"},
		{2, cluster, "get", "apps", "deployments replicasets statefulsets daemonsets"},
		{2, cluster, "get", "batch", "jobs"},
		{2, harness.Namespace, "get list create update patch delete", "", "configmaps"},
		{nobody, elsewhere, "get create", "", "pods/exec"},
		{nobody, elsewhere, "get create patch", "", "configmaps"},
		{nobody, harness.Namespace, "get create", "", "pods/attach pods/portforward pods/proxy secrets"},
		{nobody, harness.Namespace, "create update patch", "", "pods pods/ephemeralcontainers serviceaccounts/token"},
		{nobody, cluster, "update patch delete", "", "nodes pods/status"},
		{nobody, cluster, "update", "", "persistentvolumes"},
		{nobody, cluster, "update patch delete", "apps", "deployments statefulsets"},
		{nobody, cluster, "create", "rbac.authorization.k8s.io", "clusterrolebindings rolebindings"},
	} {
		for at, role := range roles {
			for verb := range strings.FieldsSeq(right.verbs) {
				for name := range strings.FieldsSeq(right.resource) {
					kind, sub, _ := strings.Cut(name, "/")
					got := w.may(t, role, authorizationv1.ResourceAttributes{
						Namespace: right.namespace, Verb: verb, Group: right.group, Resource: kind, Subresource: sub,
					})
					if got != (at >= right.least) {
						t.Errorf("%s may %s %s in %q: %v", role, verb, name, right.namespace, got)
					}
				}
			}
		}
	}
}

// refused: who may exec in the namespace but not create pods there runs nothing but commands of the controller.
func refused(t *testing.T, w *world) {
	if err := w.exec(t.Context(), "viewer", here(controllerPod, "controller", "/controller", "status")); err == nil ||
		!apierrors.IsForbidden(err) {
		t.Errorf("the viewer's error is %v, want that of a right that is missing", err)
	}
	withTTY := here(controllerPod, "controller", "/controller", "status")
	withInput := withTTY
	withTTY.options.TTY, withInput.options.Stdin = true, true
	controller := func(words ...string) run { return here(controllerPod, "controller", words...) }
	for what, test := range map[string]struct {
		run  run
		want string
	}{
		"the driver's pod":         {here(driverPod, "driver", "/driver", "status"), inPod},
		"its name":                 {here(driverPod, "controller", "/controller", "status"), inPod},
		"a pod called alike":       {here(likePod, "controller", "/controller", "status"), inPod},
		"a sidecar":                {here(controllerPod, "csi-provisioner", "/controller", "status"), inPod},
		"no container":             {here(controllerPod, "", "/controller", "status"), inPod},
		"a terminal":               {withTTY, noInput},
		"input":                    {withInput, noInput},
		"a shell":                  {controller("sh", "-c", "/controller status"), listed},
		"another path":             {controller("controller", "status"), listed},
		"a second controller":      {controller("/controller"), listed},
		"one with flags":           {controller("/controller", "--lease=x"), listed},
		"another command":          {controller("/controller", "completion", "bash"), listed},
		"a flag before a command":  {controller("/controller", "--output", "status"), listed},
		"another socket":           {controller("/controller", "status", "--state-dir=/x"), itself},
		"another socket, in words": {controller("/controller", "status", "--state-dir", "/x"), itself},
	} {
		for _, who := range []string{"operator", "mover", "stranger"} {
			harness.Denied(t, who+", "+what, w.exec(t.Context(), who, test.run), test.want)
		}
	}
	for _, command := range []string{"move", "directory"} {
		for _, who := range []string{"operator", "stranger"} {
			asked := controller("/controller", command, "list")
			harness.Denied(t, who+", "+command, w.exec(t.Context(), who, asked), movers)
		}
	}
}

// reached: what is allowed gets as far as a cluster without kubelets lets it.
func reached(t *testing.T, w *world) {
	far := here(driverPod, "driver", "sh")
	far.namespace = elsewhere
	shell := here(driverPod, "driver", "sh")
	shell.options.TTY, shell.options.Stdin = true, true
	repairs := []string{"status", "volume", "pool", "work", "node"}
	for who, commands := range map[string][]string{
		"operator": repairs, "stranger": repairs, "mover": slices.Concat(repairs, []string{"move", "directory"}),
	} {
		for _, command := range commands {
			asked := here(controllerPod, "controller", "/controller", command, "list", "--output", "json")
			if err := w.exec(t.Context(), who, asked); !errors.Is(err, errReached) {
				t.Errorf("%s runs %s: %v", who, command, err)
			}
		}
	}
	for who, asked := range map[string]run{"maker": shell, "stranger": far} {
		if err := w.exec(t.Context(), who, asked); !errors.Is(err, errReached) {
			t.Errorf("%s in %s: %v", who, asked.namespace, err)
		}
	}
}

// volumes: who has the role that brings volumes back makes PersistentVolumes of the driver, and nobody else is held.
func volumes(t *testing.T, w *world) {
	for _, kind := range []string{hostPath, foreign} {
		harness.Denied(t, "the operator's "+kind, w.create(t.Context(), "operator", kind), ourKind)
		for _, who := range []string{"mover", "provisioner"} {
			if err := w.create(t.Context(), who, kind); err != nil {
				t.Errorf("%s of the %s: %v", kind, who, err)
			}
		}
	}
	if err := w.create(t.Context(), "operator", names.Driver); err != nil {
		t.Errorf("a volume of the driver: %v", err)
	}
}

// create asks for a PersistentVolume of a CSI driver, or of a hostPath.
func (w *world) create(ctx context.Context, who, kind string) error {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		},
	}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: kind, VolumeHandle: "pvc-1"}
	if kind == hostPath {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/etc"},
		}
	}
	_, err := w.people[who].CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll},
	})
	if err != nil {
		return fmt.Errorf("create a PersistentVolume: %w", err)
	}
	return nil
}
