package uninstall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

const (
	needed = "The operator is still needed: the HostPathProvisioner hostpath-provisioner exists, and nothing else " +
		"can remove what it runs.\n"
	keep = "To keep the release instead, bring it back to the last revision of `helm history RELEASE`: " +
		"helm rollback RELEASE REVISION\n"
	remove = "  kubectl delete hostpathprovisioners.hostpathprovisioner.kubevirt.io hostpath-provisioner\n"
	claims = "Delete the claims of its volumes, then it, then uninstall again:\n" + remove +
		"Or leave the data on the nodes (no pod can use it then): kubectl annotate " +
		"hostpathprovisioners.hostpathprovisioner.kubevirt.io " +
		"hostpath-provisioner hostpathprovisioner.kubevirt.io/delete-with-volumes=true\n"
)

func TestCheck(t *testing.T) {
	two := v1beta1.HostPathProvisionerSpec{
		StoragePools: []v1beta1.StoragePool{{Name: "fast", Path: "/data/fast"}, {Name: "slow", Path: "/data/slow"}},
	}
	legacy := v1beta1.HostPathProvisionerSpec{PathConfig: &v1beta1.PathConfig{Path: "/var/hpvolumes"}}
	var many v1beta1.HostPathProvisionerSpec
	for i := range 7 {
		many.StoragePools = append(many.StoragePools,
			v1beta1.StoragePool{Name: fmt.Sprint("p", i), Path: fmt.Sprint("/data/", i)})
	}
	for name, test := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"nothing left, volumes without a resource": {objects: []client.Object{csi("pv-a", "fast")}},
		"without volumes": {
			[]client.Object{resource(two)},
			needed + "  pool fast at /data/fast: 0 volumes\n  pool slow at /data/slow: 0 volumes\nDelete it, then " +
				"uninstall again:\n" + remove,
		},
		"with volumes": {
			[]client.Object{resource(two), csi("pv-a", "fast"), csi("pv-b", "fast"), csi("pv-c", "slow")},
			needed + "  pool fast at /data/fast: 2 volumes\n  pool slow at /data/slow: 1 volume\nVolumes: pv-a, " +
				"pv-b, pv-c.\n" + claims,
		},
		"with volumes of both kinds": {
			[]client.Object{resource(legacy), csi("pv-a", ""), hostPath("pv-l")},
			needed + "  pool legacy at /var/hpvolumes: 1 volume\n  legacy provisioner: 1 volume\nVolumes: pv-a, " +
				"pv-l.\n" + claims,
		},
		"behind the claim of a pool": {
			[]client.Object{resource(two), changedVolume(csi("pv-a", "fast"), func(pv *corev1.PersistentVolume) {
				pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "hpp", Name: "hpp-pool-slow-node-1"}
			})},
			needed + "  pool fast at /data/fast: 0 volumes\n  pool slow at /data/slow: 0 volumes\nDelete it, then " +
				"uninstall again:\n" + remove,
		},
		"the one that is served comes first": {
			[]client.Object{named("a", many), resource(legacy)},
			needed + "  pool legacy at /var/hpvolumes: 0 volumes\n  legacy provisioner: 0 volumes\nDelete it, then " +
				"uninstall again:\n" + remove,
		},
		"of many pools": {
			[]client.Object{resource(many)},
			needed + "  pool p0 at /data/0: 0 volumes\n  pool p1 at /data/1: 0 volumes\n  pool p2 at /data/2: 0 " +
				"volumes\n  pool p3 at /data/3: 0 volumes\n" +
				"  pool p4 at /data/4: 0 volumes\n  and 2 more pools\nDelete it, then uninstall again:\n" + remove,
		},
		"being deleted": {
			[]client.Object{deleted(resource(legacy)), hostPath("pv-l")},
			needed + "  pool legacy at /var/hpvolumes: 0 volumes\n  legacy provisioner: 1 volume\nVolumes: pv-l.\n" +
				"It is being deleted. What it waits for is in its condition Deleting:\n" +
				"  kubectl describe hostpathprovisioners.hostpathprovisioner.kubevirt.io hostpath-provisioner\nWhen " +
				"it is gone, uninstall again.\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := check(t.Context(),
				fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(test.objects...).Build(),
				counted{names.Driver, "hpp"}, &out)
			if (err != nil) != (test.want != "") {
				t.Errorf("error %v", err)
			}
			if err != nil &&
				err.Error() != "the HostPathProvisioner hostpath-provisioner is left: delete it before the operator" {
				t.Error(err)
			}
			want := test.want
			if want != "" {
				want += keep
			}
			if diff := cmp.Diff(want, out.String()); diff != "" {
				t.Error(diff)
			}
			if lines := strings.Count(out.String(), "\n"); lines > 15 {
				t.Errorf("%d lines", lines)
			}
		})
	}
}

func TestCheckWithoutAnAnswer(t *testing.T) {
	group := schema.GroupResource{Group: names.Group, Resource: "hostpathprovisioners"}
	for name, test := range map[string]struct {
		resources, volumes error
		want, printed      string
	}{
		"no CRD": {resources: &meta.NoKindMatchError{GroupKind: schema.GroupKind{
			Group: names.Group,
			Kind:  "HostPathProvisioner",
		}}},
		"CRD just gone":         {resources: apierrors.NewNotFound(group, "")},
		"resources not to have": {resources: errors.New("timed out"), want: "list the HostPathProvisioners: timed out"},
		"volumes not to have": {
			volumes: errors.New("timed out"), want: "the HostPathProvisioner hostpath-provisioner is left: delete it " +
				"before the operator",
			printed: needed + "  pool fast at /data: unknown volumes\nThe volumes could not be counted: timed " +
				"out.\nDelete it, then uninstall again:\n" + remove + keep,
		},
	} {
		t.Run(name, func(t *testing.T) {
			reader := fake.NewClientBuilder().WithScheme(scheme(t)).
				WithObjects(resource(v1beta1.HostPathProvisionerSpec{StoragePools: []v1beta1.StoragePool{{
					Name: "fast",
					Path: "/data",
				}}})).
				WithInterceptorFuncs(interceptor.Funcs{
					List: func(ctx context.Context, next client.WithWatch, list client.ObjectList,
						options ...client.ListOption,
					) error {
						fails := test.resources
						if _, volumes := list.(*corev1.PersistentVolumeList); volumes {
							fails = test.volumes
						}
						return errors.Join(fails, next.List(ctx, list, options...))
					},
				}).Build()
			var out bytes.Buffer
			err := check(t.Context(), reader, counted{names.Driver, "hpp"}, &out)
			if got := fmt.Sprint(err); test.want != "" && got != test.want || test.want == "" && err != nil {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if diff := cmp.Diff(test.printed, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCommandSaysWhereItLooked(t *testing.T) {
	command := Command()
	command.SetArgs([]string{"--kubeconfig=/does/not/exist"})
	err := command.ExecuteContext(t.Context())
	if err == nil || err.Error() != "find the cluster: stat /does/not/exist: no such file or directory" {
		t.Error(err)
	}
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1beta1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func resource(spec v1beta1.HostPathProvisionerSpec) *v1beta1.HostPathProvisioner {
	return named(names.CustomResource, spec)
}

func named(name string, spec v1beta1.HostPathProvisionerSpec) *v1beta1.HostPathProvisioner {
	return &v1beta1.HostPathProvisioner{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func changedVolume(pv *corev1.PersistentVolume, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	change(pv)
	return pv
}

func deleted(resource *v1beta1.HostPathProvisioner) *v1beta1.HostPathProvisioner {
	resource.DeletionTimestamp, resource.Finalizers = new(metav1.Now()), []string{names.Finalizer}
	return resource
}

func csi(name, pool string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver:           names.Driver,
		VolumeAttributes: map[string]string{names.StoragePoolParameter: pool},
	}
	return pv
}

func hostPath(name string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{names.LegacyIdentity: "id"}},
	}
	pv.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/var/hpvolumes/" + name}
	return pv
}
