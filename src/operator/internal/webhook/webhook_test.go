package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/webhook"
)

type (
	spec = v1beta1.HostPathProvisionerSpec
	pool = v1beta1.StoragePool
)

// override is the end of each message about volumes.
const override = `the annotation hostpathprovisioner.kubevirt.io/delete-with-volumes to "true"`

func TestCreate(t *testing.T) {
	const mode = "want one of them; storagePools serves CSI volumes, pathConfig also runs the legacy provisioner"
	for name, test := range map[string]struct {
		resource *v1beta1.HostPathProvisioner
		existing []client.Object
		want     []string // the whole message, line by line; none: allowed
	}{
		"pools":       {resource: resource(pools(pool{Name: "a", Path: "/data/a"}, pool{Name: "b", Path: "/data/b"}))},
		"pathConfig":  {resource: resource(legacy("/var/hpvolumes"))},
		"every value": {resource: resource(everyValue())},
		"being deleted": {resource: with(resource(spec{}), func(r *v1beta1.HostPathProvisioner) {
			r.Name, r.DeletionTimestamp = "other", new(metav1.Now())
		})},
		"another name, the only one": {
			resource: with(resource(legacy("/data")), func(r *v1beta1.HostPathProvisioner) { r.Name = "mine" }),
		},
		"another name beside the right one": {
			resource: with(resource(legacy("/data")), func(r *v1beta1.HostPathProvisioner) { r.Name = "mine" }),
			existing: []client.Object{resource(legacy("/old"))},
			want: []string{`metadata.name: Forbidden: there is a HostPathProvisioner already, ` +
				`"hostpath-provisioner", and a cluster has only one: change that one, or delete it first`},
		},
		"a second one": {
			resource: resource(legacy("/data")),
			existing: []client.Object{with(resource(legacy("/old")),
				func(r *v1beta1.HostPathProvisioner) { r.Name = "hpp" })},
			want: []string{`metadata.name: Forbidden: there is a HostPathProvisioner already, "hpp", and a cluster ` +
				`has only one: ` +
				`change that one, or delete it first`},
		},
		"neither pools nor pathConfig": {
			resource: resource(spec{}),
			want:     []string{"spec: Required value: neither storagePools nor pathConfig is set: " + mode},
		},
		"both": {
			resource: resource(spec{
				StoragePools: []pool{{Name: "a", Path: "/data/a"}},
				PathConfig:   &v1beta1.PathConfig{Path: "/data/b"},
			}),
			want: []string{"spec: Forbidden: both storagePools and pathConfig are set: " + mode},
		},
		"pathConfig in a directory of the system": {
			resource: resource(legacy("/etc")),
			want: []string{`spec.pathConfig.path: Invalid value: "/etc": it is or lies in /etc, a directory of the ` +
				`system: want one that belongs to the pool alone, ` +
				`such as /var/lib/hostpath-provisioner`},
		},
		"relative path": {
			resource: resource(pools(pool{Name: "a", Path: "data"})),
			want: []string{`spec.storagePools[0].path: Invalid value: "data": want the absolute path of a ` +
				`directory on the node`},
		},
		"path that is not clean": {
			resource: resource(pools(pool{Name: "a", Path: "/data/../a/"})),
			want:     []string{`spec.storagePools[0].path: Invalid value: "/data/../a": it is not clean: write "/a"`},
		},
		"paths with slashes too many": {
			resource: resource(pools(pool{Name: "a", Path: "/data/a/"}, pool{Name: "b", Path: "//data///b//"})),
		},
		"pathConfig with a trailing slash": {resource: resource(legacy("/var/hpvolumes/"))},
		"the root with slashes too many": {
			resource: resource(pools(pool{Name: "a", Path: "//"})),
			want: []string{`spec.storagePools[0].path: Invalid value: "/": it is or lies in /, a directory of the ` +
				`system: want one that belongs to the pool alone, such as /var/lib/hostpath-provisioner`},
		},
		"two at one path but for a slash": {
			resource: resource(pools(pool{Name: "a", Path: "/data"}, pool{Name: "b", Path: "/data/"})),
			want: []string{
				`spec.storagePools[0].path: Invalid value: "/data": it and "/data" of the pool "b" lie in one ` +
					`another: want separate directories`,
				`spec.storagePools[1].path: Invalid value: "/data": it and "/data" of the pool "a" lie in one ` +
					`another: want separate directories`,
			},
		},
		"path missing": {
			resource: resource(pools(pool{Name: "a"})),
			want: []string{`spec.storagePools[0].path: Invalid value: "": want the absolute path of a directory ` +
				`on the node`},
		},
		"path with a control character": {
			resource: resource(pools(pool{Name: "a", Path: "/da\nta"})),
			want: []string{`spec.storagePools[0].path: Invalid value: "/da\nta": want a path without control ` +
				`characters`},
		},
		"path too long": {
			resource: resource(pools(pool{Name: "a", Path: "/" + strings.Repeat("p", 1024)})),
			want:     []string{"spec.storagePools[0].path: Invalid value: 1025: want at most 1024 bytes"},
		},
		"name": {
			resource: resource(pools(pool{Name: "My Pool", Path: "/data"})),
			want: []string{`spec.storagePools[0].name: Invalid value: "My Pool": want a DNS label: 1 to 63 of a-z, ` +
				`0-9 and -, ` +
				`beginning and ending with a letter or digit`},
		},
		"two of one name": {
			resource: resource(pools(pool{Name: "a", Path: "/data/a"}, pool{Name: "a", Path: "/data/b"})),
			want: []string{`spec.storagePools[1].name: Invalid value: "a": two pools have this name: want one of ` +
				`its own`},
		},
		"two at one path": {
			resource: resource(pools(pool{Name: "a", Path: "/data"}, pool{Name: "b", Path: "/data"})),
			want: []string{
				`spec.storagePools[0].path: Invalid value: "/data": it and "/data" of the pool "b" lie in one ` +
					`another: want separate directories`,
				`spec.storagePools[1].path: Invalid value: "/data": it and "/data" of the pool "a" lie in one ` +
					`another: want separate directories`,
			},
		},
		"one in another": {
			resource: resource(pools(pool{Name: "a", Path: "/data/a"}, pool{Name: "b", Path: "/data"})),
			want: []string{
				`spec.storagePools[0].path: Invalid value: "/data/a": it and "/data" of the pool "b" lie in one ` +
					`another: want separate directories`,
				`spec.storagePools[1].path: Invalid value: "/data": it and "/data/a" of the pool "a" lie in one ` +
					`another: want separate directories`,
			},
		},
		"scope": {
			resource: resource(pools(pool{Name: "a", Path: "/data", Scope: "everyNode"})),
			want:     []string{`spec.storagePools[0].scope: Invalid value: "everyNode": want node or shared`},
		},
		"quota": {
			resource: resource(pools(pool{Name: "a", Path: "/data", Quota: "soft"})),
			want:     []string{`spec.storagePools[0].quota: Invalid value: "soft": want auto, required or none`},
		},
		"reserve that is no amount": {
			resource: resource(pools(pool{Name: "a", Path: "/data", Reserve: new(intstr.FromString("lots"))})),
			want: []string{`spec.storagePools[0].reserve: Invalid value: "lots": want a whole number of bytes such ` +
				`as "4096" or "10Gi", ` +
				`or a percentage such as "5%"`},
		},
		"reserve below nothing": {
			resource: resource(pools(pool{Name: "a", Path: "/data", Reserve: new(intstr.FromInt32(-1))})),
			want:     []string{"spec.storagePools[0].reserve: Invalid value: \"-1\": want 0 bytes or more"},
		},
		"reserve of everything": {
			resource: resource(pools(pool{Name: "a", Path: "/data", Reserve: new(intstr.FromString("100%"))})),
			want: []string{"spec.storagePools[0].reserve: Invalid value: \"100%\": want 0% or more and less than " +
				"100%"},
		},
		"overcommit": {
			resource: resource(pools(pool{Name: "a", Path: "/data", Overcommit: new(-1.0)})),
			want: []string{"spec.storagePools[0].overcommit: Invalid value: -1: want a factor from 0 (the " +
				"backend's default) to 1000"},
		},
		"maxVolumes": {
			resource: resource(pools(pool{Name: "a", Path: "/data", MaxVolumes: -1})),
			want:     []string{"spec.storagePools[0].maxVolumes: Invalid value: -1: want 0 (no limit) or more"},
		},
		"retention that is no duration": {
			resource: resource(pools(pool{Name: "a", Path: "/data", Trash: &v1beta1.Trash{Retention: "1 day"}})),
			want: []string{`spec.storagePools[0].trash.retention: Invalid value: "1 day": want a duration: a number ` +
				`with a unit of s, m or h, ` +
				`such as "36h" or "0s"`},
		},
		"retention below nothing": {
			resource: resource(pools(pool{Name: "a", Path: "/data", Trash: &v1beta1.Trash{Retention: "-1h"}})),
			want: []string{"spec.storagePools[0].trash.retention: Invalid value: \"-1h0m0s\": want 0s (purge at " +
				"once) to 999999h"},
		},
		"nodeSelector's value": {
			resource: resource(pools(pool{Name: "a", Path: "/data", NodeSelector: map[string]string{"disk": "a b"}})),
			want: []string{`spec.storagePools[0].nodeSelector[disk]: Invalid value: "a b": want a label value: a ` +
				`valid label must be an empty string or consist of ` +
				`alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character ` +
				`(e.g. 'MyValue',  or 'my_value',  ` +
				`or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`},
		},
		"nodeSelector's key": {
			resource: resource(pools(pool{Name: "a", Path: "/data", NodeSelector: map[string]string{"": "x"}})),
			want: []string{
				`spec.storagePools[0].nodeSelector: Invalid value: "": want a label key: name part must be non-empty`,
				`spec.storagePools[0].nodeSelector: Invalid value: "": want a label key: name part must consist of ` +
					`alphanumeric characters, '-', '_' or '.', and must ` +
					`start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', ` +
					`regex used for validation is ` +
					`'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			},
		},
		"what kubevirt's operator ignored": {
			resource: resource(spec{
				StoragePools: []pool{{
					Name: "a", Path: "/data", SnapshotProvider: "zfs", OverlayClassName: "hpp-overlay",
				}},
				FeatureGates: []string{"Snapshotting", "Cloning"},
			}),
		},
		"several at once": {
			resource: with(resource(pools(pool{Name: "a", Path: "data", Quota: "soft"})),
				func(r *v1beta1.HostPathProvisioner) { r.Name = "mine" }),
			existing: []client.Object{resource(legacy("/old"))},
			want: []string{
				`metadata.name: Forbidden: there is a HostPathProvisioner already, "hostpath-provisioner", and a ` +
					`cluster has only one: change that one, or delete it first`,
				`spec.storagePools[0].path: Invalid value: "data": want the absolute path of a directory on the node`,
				`spec.storagePools[0].quota: Invalid value: "soft": want auto, required or none`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			judged(t, ask(t, reader(test.existing...), admissionv1.Create, nil, test.resource), test.want)
		})
	}
}

func TestUpdate(t *testing.T) {
	bad := pools(pool{Name: "My Pool", Path: "/data/"}, pool{Name: "b", Path: "/data/b"})
	two := pools(pool{Name: "a", Path: "/data/a"}, pool{Name: "b", Path: "/data/b"})
	inA, inB := pv("pv-a", csi("a"), claimed("shop", "orders")), pv("pv-b", csi("b"))
	for name, test := range map[string]struct {
		old, changed spec
		annotations  map[string]string
		volumes      []client.Object
		want         []string
	}{
		"old violations, another field": {old: bad, changed: changed(bad,
			func(s *spec) { s.ImagePullPolicy = corev1.PullAlways })},
		"old violations, another pool": {old: bad, changed: changed(bad, func(s *spec) {
			s.StoragePools = append([]pool{{Name: "new", Path: "/new"}}, s.StoragePools...)
		})},
		"an old violation, changed into another": {
			old: bad, changed: changed(bad, func(s *spec) { s.StoragePools[0].Path = "data" }),
			want: []string{`spec.storagePools[0].path: Invalid value: "data": want the absolute path of a directory ` +
				`on the node`},
		},
		"a new violation beside old ones": {
			old: bad, changed: changed(bad, func(s *spec) {
				s.StoragePools[1].Quota, s.StoragePools[1].MaxVolumes = "soft", -1
			}),
			want: []string{
				`spec.storagePools[1].quota: Invalid value: "soft": want auto, required or none`,
				`spec.storagePools[1].maxVolumes: Invalid value: -1: want 0 (no limit) or more`,
			},
		},
		"an old mistake of mode": {old: spec{}, changed: spec{ImagePullPolicy: corev1.PullNever}},
		"a new mistake of mode": {
			old: two, changed: changed(two, func(s *spec) { s.PathConfig = &v1beta1.PathConfig{Path: "/x"} }),
			want: []string{"spec: Forbidden: both storagePools and pathConfig are set: want one of them; " +
				"storagePools serves CSI volumes, " +
				"pathConfig also runs the legacy provisioner"},
		},
		"a trailing slash is mended under volumes": {
			old: pools(pool{Name: "a", Path: "/data/"}), changed: pools(pool{Name: "a", Path: "/data"}),
			volumes: []client.Object{inA},
		},
		"slashes too many come in under volumes": {
			old: pools(pool{Name: "a", Path: "/data"}), changed: pools(pool{Name: "a", Path: "//data/"}),
			volumes: []client.Object{inA},
		},
		"pools in another order": {
			old: two, changed: pools(two.StoragePools[1], two.StoragePools[0]), volumes: []client.Object{inA, inB},
		},
		"path changed, no volumes there": {old: two, changed: pathOf(two, 0, "/other"), volumes: []client.Object{inB}},
		"path changed under a volume": {
			old: two, changed: pathOf(two, 0, "/other"), volumes: []client.Object{inA, inB},
			want: []string{`spec.storagePools[0].path: Forbidden: the pool "a" at "/data/a" still has 1 volume: ` +
				`shop/orders (pv-a); ` +
				`keep the path "/data/a", delete their claims first, or set ` + override + " to leave their data on " +
				"the nodes"},
		},
		"path changed, forced": {
			old: two, changed: pathOf(two, 0, "/other"), volumes: []client.Object{inA},
			annotations: map[string]string{names.ForceDelete: "true"},
		},
		"path changed, annotation with another value": {
			old: two, changed: pathOf(two, 0, "/other"), volumes: []client.Object{inA},
			annotations: map[string]string{names.ForceDelete: "yes"},
			want: []string{`spec.storagePools[0].path: Forbidden: the pool "a" at "/data/a" still has 1 volume: ` +
				`shop/orders (pv-a); ` +
				`keep the path "/data/a", delete their claims first, or set ` + override + " to leave their data on " +
				"the nodes"},
		},
		"scope changed under a volume": {
			old: two, changed: changed(two, func(s *spec) { s.StoragePools[1].Scope = "shared" }),
			volumes: []client.Object{inA, inB},
			want: []string{`spec.storagePools[1].scope: Forbidden: the pool "b" of scope node still has 1 volume: ` +
				`pv-b; ` +
				`keep the scope node, delete their claims first, or set ` + override + " to leave their data on the " +
				"nodes"},
		},
		"pvcTemplate added under a volume": {
			old: two,
			changed: changed(two,
				func(s *spec) { s.StoragePools[0].PVCTemplate = template() }),
			volumes: []client.Object{inA, inB},
			want: []string{`spec.storagePools[0].pvcTemplate: Forbidden: the pool "a", whose filesystem would come ` +
				`from claims, still has 1 volume: shop/orders (pv-a); ` +
				`leave pvcTemplate out, delete their claims first, or set ` + override + " to leave their data on " +
				"the nodes"},
		},
		"pvcTemplate added, no volumes there": {
			old: two,
			changed: changed(two,
				func(s *spec) { s.StoragePools[0].PVCTemplate = template() }),
			volumes: []client.Object{inB},
		},
		"scope written out": {old: two, changed: changed(two,
			func(s *spec) { s.StoragePools[0].Scope = "node" }), volumes: []client.Object{inA}},
		"pool removed, no volumes there": {
			old: two, changed: pools(two.StoragePools[0]),
			volumes: []client.Object{inA},
		},
		"pool removed with a volume": {
			old: two, changed: pools(two.StoragePools[0]), volumes: []client.Object{inA, inB},
			want: []string{`spec.storagePools: Forbidden: the pool "b", which is removed, still has 1 volume: pv-b; ` +
				`keep it, delete their claims first, or set ` +
				override + " to leave their data on the nodes"},
		},
		"pool removed, its volume Released and Retain": {
			old: two, changed: pools(two.StoragePools[0]),
			volumes: []client.Object{pv("pv-b", csi("b"), released(corev1.PersistentVolumeReclaimRetain))},
		},
		"pool removed, its volume Released and Delete": {
			old: two, changed: pools(two.StoragePools[0]),
			volumes: []client.Object{pv("pv-b", csi("b"), released(corev1.PersistentVolumeReclaimDelete))},
			want: []string{`spec.storagePools: Forbidden: the pool "b", which is removed, still has 1 volume: pv-b; ` +
				`keep it, delete their claims first, or set ` +
				override + " to leave their data on the nodes"},
		},
		"pool removed, volume of another driver": {
			old: two, changed: pools(two.StoragePools[0]),
			volumes: []client.Object{pv("pv-x", func(pv *corev1.PersistentVolume) {
				csi("b")(pv)
				pv.Spec.CSI.Driver = "hostpath.csi.k8s.io"
			})},
		},
		"pathConfig to pools with legacy volumes": {
			old: legacy("/data"), changed: pools(pool{Name: "legacy", Path: "/data"}),
			volumes: []client.Object{pv("pv-l", hostPath, claimed("shop", "old"))},
			want: []string{`spec.pathConfig: Forbidden: the legacy provisioner, which is removed, still has 1 ` +
				`volume: shop/old (pv-l); keep pathConfig, ` +
				`delete their claims first, or set ` + override + " to leave their data on the nodes"},
		},
		"pathConfig to the same pool with CSI volumes": {
			old: legacy("/data"), changed: pools(pool{Name: "legacy", Path: "/data"}),
			volumes: []client.Object{pv("pv-c", csi(""))},
		},
		"pathConfig to another pool with CSI volumes": {
			old: legacy("/data"), changed: pools(pool{Name: "a", Path: "/data"}),
			volumes: []client.Object{pv("pv-c", csi("")), pv("pv-d", csi("legacy"))},
			want: []string{`spec.pathConfig: Forbidden: the pool "legacy", which is removed, still has 2 volumes: ` +
				`pv-c, pv-d; keep it, ` +
				`delete their claims first, or set ` + override + " to leave their data on the nodes"},
		},
		"pools to pathConfig with volumes": {
			old: two, changed: legacy("/data"), volumes: []client.Object{inA},
			want: []string{`spec.storagePools: Forbidden: the pool "a", which is removed, still has 1 volume: ` +
				`shop/orders (pv-a); keep it, ` +
				`delete their claims first, or set ` + override + " to leave their data on the nodes"},
		},
		"pathConfig's path changed under both kinds": {
			old: legacy("/data"), changed: legacy("/other"),
			volumes: []client.Object{pv("pv-c", csi("")), pv("pv-l", hostPath)},
			want: []string{
				`spec.pathConfig.path: Forbidden: the pool "legacy" at "/data" still has 1 volume: pv-c; keep the ` +
					`path "/data", ` +
					`delete their claims first, or set ` + override + " to leave their data on the nodes",
				`spec.pathConfig.path: Forbidden: the legacy provisioner at "/data" still has 1 volume: pv-l; keep ` +
					`the path "/data", ` +
					`delete their claims first, or set ` + override + " to leave their data on the nodes",
			},
		},
		"useNamingPrefix with volumes": {
			old: legacy("/data"), changed: changed(legacy("/data"),
				func(s *spec) { s.PathConfig.UseNamingPrefix = true }),
			volumes: []client.Object{pv("pv-l", hostPath)},
		},
		"volumes without a pool count for the only one": {
			old: pools(pool{Name: "a", Path: "/data/a"}), changed: pools(pool{Name: "a", Path: "/x"}),
			volumes: []client.Object{pv("pv-c", csi(""))},
			want: []string{`spec.storagePools[0].path: Forbidden: the pool "a" at "/data/a" still has 1 volume: ` +
				`pv-c; keep the path "/data/a", ` +
				`delete their claims first, or set ` + override + " to leave their data on the nodes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			old, now := resource(test.old), resource(test.changed)
			now.Annotations = test.annotations
			judged(t, ask(t, reader(test.volumes...), admissionv1.Update, old, now), test.want)
		})
	}
}

func TestUpdateOfWhatIsBeingDeletedPasses(t *testing.T) {
	old := with(resource(pools(pool{Name: "a", Path: "/data"})),
		func(r *v1beta1.HostPathProvisioner) { r.DeletionTimestamp = new(metav1.Now()) })
	now := with(old.DeepCopy(), func(r *v1beta1.HostPathProvisioner) { r.Spec = spec{} })
	judged(t, ask(t, reader(pv("pv-a", csi("a"))), admissionv1.Update, old, now), nil)
}

func TestUpdateOfMetadataAsksNobody(t *testing.T) {
	old := resource(pools(pool{Name: "a", Path: "/data/"}))
	now := with(old.DeepCopy(), func(r *v1beta1.HostPathProvisioner) { r.Finalizers = []string{names.Finalizer} })
	judged(t, ask(t, unreachable(), admissionv1.Update, old, now), nil)
}

func TestDelete(t *testing.T) {
	var many []client.Object
	var listed []string
	for i := range 12 {
		name := fmt.Sprintf("pv-%02d", i)
		many = append(many, pv(name, csi("a"), claimed("shop", fmt.Sprintf("claim-%02d", i))))
		if i < 10 {
			listed = append(listed, fmt.Sprintf("shop/claim-%02d (%s)", i, name))
		}
	}
	refused := func(name, what string) []string {
		return []string{
			fmt.Sprintf(
				`the HostPathProvisioner %q still has %s; delete their claims first, or set %s on it to delete it `+
					`and leave the data on the nodes`,
				name,
				what,
				override,
			),
		}
	}
	good := resource(pools(pool{Name: "a", Path: "/data"}))
	other := with(good.DeepCopy(), func(r *v1beta1.HostPathProvisioner) { r.Name = "hpp" })
	third := with(good.DeepCopy(), func(r *v1beta1.HostPathProvisioner) { r.Name = "third" })
	for name, test := range map[string]struct {
		resource *v1beta1.HostPathProvisioner
		existing []client.Object
		want     []string
	}{
		"without volumes": {resource: good},
		"with many": {
			resource: good, existing: many,
			want: refused(good.Name, "12 volumes: "+strings.Join(listed, ", ")+" and 2 more"),
		},
		"with a legacy one": {
			resource: good, existing: []client.Object{pv("pv-l", hostPath)},
			want: refused(good.Name, "1 volume: pv-l"),
		},
		"of a pool that went": {
			resource: good, existing: []client.Object{pv("pv-x", csi("gone"))},
			want: refused(good.Name, "1 volume: pv-x"),
		},
		"Released and Retain": {resource: good, existing: []client.Object{pv("pv-a", csi("a"),
			released(corev1.PersistentVolumeReclaimRetain))}},
		"a stranger's hostPath volume": {
			resource: good,
			existing: []client.Object{pv("pv-l", func(pv *corev1.PersistentVolume) {
				hostPath(pv)
				pv.Annotations = nil
			})},
		},
		"forced": {existing: many, resource: with(good.DeepCopy(), func(r *v1beta1.HostPathProvisioner) {
			r.Annotations = map[string]string{names.ForceDelete: "true"}
		})},
		"deleted already": {existing: many, resource: with(good.DeepCopy(), func(r *v1beta1.HostPathProvisioner) {
			r.DeletionTimestamp = new(metav1.Now())
		})},
		"one of another name, alone": {
			resource: other, existing: many[:1],
			want: refused("hpp", "1 volume: "+listed[0]),
		},
		"one of another name, one too many": {resource: other, existing: append([]client.Object{good, other}, many...)},
		"one of two other names, of which none is served": {
			resource: other, existing: append([]client.Object{other, third}, many...),
		},
		"the right name beside another": {
			resource: good, existing: append([]client.Object{good, other}, many[0]),
			want: refused(good.Name, "1 volume: "+listed[0]),
		},
		"behind the claim of a pool": {
			resource: good, existing: []client.Object{pv("pv-a", csi("a"), claimed("hpp", "hpp-pool-b-node-1"))},
		},
		"behind a claim of that name, in another namespace": {
			resource: good, existing: []client.Object{pv("pv-a", csi("a"), claimed("shop", "hpp-pool-b-node-1"))},
			want: refused(good.Name, "1 volume: shop/hpp-pool-b-node-1 (pv-a)"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			judged(t, ask(t, reader(test.existing...), admissionv1.Delete, test.resource, nil), test.want)
		})
	}
}

func TestWithoutAnAnswerNothingIsGivenUp(t *testing.T) {
	good := resource(pools(pool{Name: "a", Path: "/data"}))
	moved := resource(pools(pool{Name: "a", Path: "/other"}))
	const volumes = "the PersistentVolumes cannot be listed, so volumes might be left behind: timed out; try again"
	judged(t, ask(t, unreachable(), admissionv1.Delete, good, nil), []string{volumes})
	judged(t, ask(t, unreachable(), admissionv1.Update, good, moved), []string{volumes})
	judged(t, ask(t, unreachable(), admissionv1.Create, nil, good), []string{
		"the HostPathProvisioners cannot be listed, so it is not known which one is served: timed out; try again",
	})
	other := with(good.DeepCopy(), func(r *v1beta1.HostPathProvisioner) { r.Name = "hpp" })
	judged(t, ask(t, unreachable(), admissionv1.Delete, other, nil), []string{
		"the HostPathProvisioners cannot be listed, so it is not known which one is served: timed out; try again",
	})
}

func TestWarnings(t *testing.T) {
	all := pools(
		pool{Name: "a", Path: "/data/a", PVCTemplate: templateForAll(), SnapshotProvider: "reflink"},
		pool{Name: "b", Path: "/data/b", Scope: "shared"})
	all.FeatureGates = []string{"Snapshotting"}
	want := []string{
		"spec.storagePools[0].snapshotProvider: ignored: a pool with scope shared makes no snapshots",
	}
	created := ask(t, reader(), admissionv1.Create, nil, resource(all))
	judged(t, created, nil)
	if diff := cmp.Diff(want, created.Warnings); diff != "" {
		t.Error(diff)
	}
	updated := ask(t, reader(), admissionv1.Update, resource(pools(pool{Name: "a", Path: "/data/a"})),
		resource(legacy("/data")))
	if diff := cmp.Diff([]string{
		"spec.pathConfig is for existing installations: it also runs the legacy provisioner; new ones use storagePools",
		"spec.storagePools: every node that had the pool \"a\", which is removed, remembers it where it was, until " +
			"you run " +
			"`kubectl hpp pool forget` for it",
	}, updated.Warnings); diff != "" {
		t.Error(diff)
	}
	moved := ask(t, reader(), admissionv1.Update, resource(pools(pool{Name: "a", Path: "/data/a"})),
		resource(pools(pool{Name: "a", Path: "/data/b"})))
	if diff := cmp.Diff([]string{
		"spec.storagePools[0].path: every node that had the pool \"a\" at \"/data/a\" remembers it where it was, " +
			"until you run " +
			"`kubectl hpp pool forget` for it",
	}, moved.Warnings); diff != "" {
		t.Error(diff)
	}
	insisting := resource(pools(pool{Name: "a", Path: "/data/a", MaxVolumes: 5}))
	insisting.Annotations = map[string]string{names.ForceDelete: "true"}
	insisted := ask(t, reader(), admissionv1.Update, resource(pools(pool{Name: "a", Path: "/data/a"})), insisting)
	if diff := cmp.Diff([]string{
		"the annotation " + names.ForceDelete + " is set: no change is refused for the sake of volumes until you " +
			"take it off",
	}, insisted.Warnings); diff != "" {
		t.Error(diff)
	}
	if untouched := ask(t, reader(), admissionv1.Update, resource(all), resource(all)); len(untouched.Warnings) > 0 {
		t.Errorf("warnings %q for a spec that nobody touched", untouched.Warnings)
	}
}

// ask sends what the API server sends.
func ask(
	t *testing.T, server client.Reader, operation admissionv1.Operation, old, now *v1beta1.HostPathProvisioner,
) admission.Response {
	t.Helper()
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: operation}}
	for object, raw := range map[*v1beta1.HostPathProvisioner]*runtime.RawExtension{
		old: &request.OldObject,
		now: &request.Object,
	} {
		if object == nil {
			continue
		}
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		raw.Raw = data
	}
	cache := reader()
	if old != nil && old.DeletionTimestamp.IsZero() {
		cache = reader(old.DeepCopy())
	}
	return handled(t, server, cache, request)
}

func handled(t *testing.T, reader, cache client.Reader, request admission.Request) admission.Response {
	t.Helper()
	validator := webhook.New(reader, cache, names.Driver, "hpp")
	return admission.WithValidator(scheme(), validator).Handle(t.Context(), request)
}

func judged(t *testing.T, response admission.Response, want []string) {
	t.Helper()
	if response.Allowed != (len(want) == 0) {
		t.Errorf("allowed: %t", response.Allowed)
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), response.Result.Message); diff != "" {
		t.Error(diff)
	}
}

func scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	_ = v1beta1.AddToScheme(scheme)
	_ = corev1.AddToScheme(scheme)
	return scheme
}

func reader(objects ...client.Object) client.Reader {
	return fake.NewClientBuilder().WithScheme(scheme()).WithObjects(objects...).Build()
}

// unreachable is an API server that does not answer.
func unreachable() client.Reader {
	return fake.NewClientBuilder().WithScheme(scheme()).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("timed out")
		},
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("timed out")
		},
	}).Build()
}

func resource(of spec) *v1beta1.HostPathProvisioner {
	return &v1beta1.HostPathProvisioner{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion().String(), Kind: "HostPathProvisioner"},
		ObjectMeta: metav1.ObjectMeta{Name: names.CustomResource}, Spec: of,
	}
}

func with(
	resource *v1beta1.HostPathProvisioner, change func(*v1beta1.HostPathProvisioner),
) *v1beta1.HostPathProvisioner {
	change(resource)
	return resource
}

func pools(of ...pool) spec { return spec{StoragePools: of} }

func legacy(path string) spec { return spec{PathConfig: &v1beta1.PathConfig{Path: path}} }

func changed(of spec, change func(*spec)) spec {
	copied := of.DeepCopy()
	change(copied)
	return *copied
}

func pathOf(of spec, pool int, path string) spec {
	return changed(of, func(s *spec) { s.StoragePools[pool].Path = path })
}

func TestEveryValueHasEveryPoolOption(t *testing.T) {
	t.Parallel()
	first := everyValue().StoragePools[0]
	for _, options := range []reflect.Value{reflect.ValueOf(first), reflect.ValueOf(*first.Trash)} {
		for option, value := range options.Fields() {
			if value.IsZero() {
				t.Errorf("everyValue lacks %s.%s", options.Type(), option.Name)
			}
		}
	}
}

func everyValue() spec {
	return spec{
		ImagePullPolicy: corev1.PullIfNotPresent,
		StoragePools: []pool{{
			Name: "fast", Path: "/data/fast", PVCTemplate: template(),
			SnapshotProvider: "reflink", OverlayClassName: "hpp-overlay",
			Scope: "node", NodeSelector: map[string]string{"disk": "nvme"}, RequireMount: new(true), Quota: "required",
			Reserve: new(intstr.FromString("5%")),
			Overcommit: new(
				1.5), MaxVolumes: 40, Inline: true, Trash: &v1beta1.Trash{Retention: "36h", PurgeWhenFull: true},
			SharedAccess: true,
		}},
		Workload:     v1beta1.Workload{NodeSelector: map[string]string{"kubernetes.io/os": "linux"}},
		FeatureGates: []string{"Snapshotting"},
	}
}

func pv(name string, with ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Status.Phase = corev1.VolumeBound
	for _, change := range with {
		change(pv)
	}
	return pv
}

// csi makes a volume of the driver; of a class that names no pool if pool is empty.
func csi(pool string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: names.Driver, VolumeHandle: pv.Name}
		if pool != "" {
			pv.Spec.CSI.VolumeAttributes = map[string]string{names.StoragePoolParameter: pool}
		}
	}
}

func hostPath(pv *corev1.PersistentVolume) {
	pv.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/data/" + pv.Name}
	pv.Annotations = map[string]string{names.ProvisionedBy: names.LegacyProvisioner}
}

func claimed(namespace, name string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name}
	}
}

func released(policy corev1.PersistentVolumeReclaimPolicy) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Status.Phase, pv.Spec.PersistentVolumeReclaimPolicy = corev1.VolumeReleased, policy
	}
}
