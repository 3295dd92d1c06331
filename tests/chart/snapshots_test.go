package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

const (
	snapshotGroup = "snapshot.storage.k8s.io"
	snapshotLease = "external-snapshotter-leader-kubevirt-io-hostpath-provisioner"
)

// snapshots are the chart's own values on a cluster with the API of snapshots.
func snapshots() helmcli.Values { return helmcli.Values{APIVersions: []string{snapshotGroup + "/v1"}} }

// TestSnapshotsAreAllOrNothing: sidecar, rights, Lease and classes come together, where values and cluster say so.
func TestSnapshotsAreAllOrNothing(t *testing.T) {
	t.Parallel()
	other := helmcli.Values{APIVersions: []string{"group" + snapshotGroup + "/v1"}}
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		for name, test := range map[string]struct {
			values helmcli.Values
			want   bool
		}{
			"auto without the API":                {helmcli.Values{}, false},
			"auto with the API":                   {snapshots(), true},
			"true, as helm template may not know": {helmcli.Values{Set: set("snapshots", "true")}, true},
			`"true"`:                              {helmcli.Values{JSON: set("snapshots", `"true"`)}, true},
			"false":                               {withAPI(set("snapshots", "false")), false},
			`"false"`:                             {withAPI(set("snapshots", `"false"`)), false},
			"another API of snapshots":            {other, false},
		} {
			objects := helmcli.Objects(t, helm.MustTemplate(t, test.values))
			for part, there := range partsOfSnapshots(t, objects) {
				if there != test.want {
					t.Errorf("%s: %s is there: %v, want %v", name, part, there, test.want)
				}
			}
		}
	})
}

func withAPI(json map[string]string) helmcli.Values {
	values := snapshots()
	values.JSON = json
	return values
}

// partsOfSnapshots are what they are made of, and whether that is there.
func partsOfSnapshots(t *testing.T, objects []client.Object) map[string]bool {
	t.Helper()
	pod := helmcli.Find[*appsv1.Deployment](t, objects, controller).Spec.Template.Spec
	parts := map[string]bool{
		"csi-snapshotter": slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool {
			return c.Name == "csi-snapshotter"
		}),
		"a class": slices.ContainsFunc(objects, func(o client.Object) bool {
			_, is := o.(*snapshotv1.VolumeSnapshotClass)
			return is
		}),
		"the Lease": false, "a right": false,
	}
	for _, each := range rightsOfAccount(objects, controller) {
		parts["a right"] = parts["a right"] || each.group == snapshotGroup
		parts["the Lease"] = parts["the Lease"] || each.name == snapshotLease
	}
	return parts
}

func TestSnapshotterArguments(t *testing.T) {
	t.Parallel()
	c := container(t, controllerPod(t, snapshots(), controller).Spec, "csi-snapshotter")
	want := []string{
		"--csi-address=/csi/csi.sock", "--leader-election", "--extra-create-metadata",
		"--feature-gates=CSIVolumeGroupSnapshot=false", "--timeout=1m", "--retry-interval-max=1m", "--kube-api-qps=50",
		"--kube-api-burst=100", "--http-endpoint=:9893", "--v=2",
	}
	if diff := cmp.Diff(want, c.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"GOMEMLIMIT=966367641"}, environment(c.Env)); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	mounted := func(m corev1.VolumeMount) bool { return m.Name == "socket-dir" && m.MountPath == "/csi" }
	if !slices.ContainsFunc(c.VolumeMounts, mounted) {
		t.Errorf("it does not mount the socket: %v", c.VolumeMounts)
	}
}

// TestSnapshotRolesAreLeast: beside what the account has without them, external-provisioner v6.3.0 reads and updates
// VolumeSnapshots and gets contents; external-snapshotter v8.7.0 watches classes and contents, patches contents, and
// patches and updates their status. No secrets: the driver has none.
func TestSnapshotRolesAreLeast(t *testing.T) {
	t.Parallel()
	helm := helmsdk.Newest()
	objects := helmcli.Objects(t, helm.MustTemplate(t, snapshots()))
	want := slices.Concat(ofController(), ofProvisioner(), ofResizer(), []rbacv1.PolicyRule{
		rule(snapshotGroup, "volumesnapshots", "get", "list", "watch", "update"),
		rule(snapshotGroup, "volumesnapshotcontents", "get", "list", "watch", "patch"),
		rule(snapshotGroup, "volumesnapshotcontents/status", "update", "patch"),
		rule(snapshotGroup, "volumesnapshotclasses", "list", "watch"),
		rule("", "events", "create", "patch"),
	})
	if diff := cmp.Diff(want, helmcli.Find[*rbacv1.ClusterRole](t, objects, controller).Rules); diff != "" {
		t.Errorf("ClusterRole (-want +got):\n%s", diff)
	}
	const lease = "kubevirt-io-hostpath-provisioner"
	rules := helmcli.Find[*rbacv1.Role](t, objects, controller).Rules
	leases := named(rule("coordination.k8s.io", "leases", "get", "update"), controller, lease,
		"external-resizer-"+lease, snapshotLease)
	if diff := cmp.Diff(leases, rules[len(rules)-1]); diff != "" {
		t.Errorf("Leases (-want +got):\n%s", diff)
	}
}

// TestSnapshotClasses: both ways to be consistent are offered, as src/internal/nodeapi reads them, and neither is the
// default.
func TestSnapshotClasses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		values helmcli.Values
		want   map[string]snapshotv1.VolumeSnapshotClass
	}{
		"default": {snapshots(), map[string]snapshotv1.VolumeSnapshotClass{
			"hostpath-point-in-time": {
				Driver: "kubevirt.io.hostpath-provisioner", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
				Parameters: set("consistency", "point-in-time"),
			},
			"hostpath-best-effort": {
				Driver: "kubevirt.io.hostpath-provisioner", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
				Parameters: set("consistency", "best-effort"),
			},
		}},
		"everything": {renderings()["everything"], map[string]snapshotv1.VolumeSnapshotClass{
			"moment": {
				Driver: "everything.hostpath.csi", DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain,
				Parameters: set("consistency", "point-in-time"),
			},
			"plain.example.com": {
				Driver: "everything.hostpath.csi", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
			},
		}},
	} {
		got, defaults := map[string]snapshotv1.VolumeSnapshotClass{}, 0
		for _, object := range helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, test.values)) {
			class, is := object.(*snapshotv1.VolumeSnapshotClass)
			if !is {
				continue
			}
			got[class.Name] = snapshotv1.VolumeSnapshotClass{
				Driver: class.Driver, DeletionPolicy: class.DeletionPolicy, Parameters: class.Parameters,
			}
			if class.Annotations["snapshot.storage.kubernetes.io/is-default-class"] == "true" {
				defaults++
				if class.Name != "moment" || class.Labels["tier"] != "gold" ||
					class.Annotations["example.com/class"] != "gold" {
					t.Errorf("%s: the default class is %+v", name, class.ObjectMeta)
				}
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: classes (-want +got):\n%s", name, diff)
		}
		if defaults > 0 != (name == "everything") {
			t.Errorf("%s: %d default classes", name, defaults)
		}
	}
}

func TestWrongSnapshotValuesAreRefused(t *testing.T) {
	t.Parallel()
	classes := func(class string) map[string]string { return set("snapshotClasses", "["+class+"]") }
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		expectRefusals(t, helm, map[string]refusal{
			"maybe": {set: set("snapshots", "maybe"), want: []string{"/snapshots"}},
			"consistency": {
				json: classes(`{"name":"a","consistency":"some"}`), want: []string{"/snapshotClasses/0/consistency"},
			},
			"policy": {
				json: classes(`{"name":"a","deletionPolicy":"Keep"}`),
				want: []string{"/snapshotClasses/0/deletionPolicy"},
			},
			"unknown key": {
				json: classes(`{"name":"a","parameters":{}}`), want: []string{"/snapshotClasses/0", "'parameters'"},
			},
		})
	})
}

// TestSnapshotterIsScraped where networks are closed.
func TestSnapshotterIsScraped(t *testing.T) {
	t.Parallel()
	for on, want := range map[string][]int32{"true": {9898, 9894, 9895, 9893}, "false": {9898, 9894, 9895}} {
		policy := helmcli.Find[*networkingv1.NetworkPolicy](t, helmcli.Objects(t, helmsdk.Newest().MustTemplate(t,
			helmcli.Values{Set: map[string]string{"networkPolicies.enabled": "true", "snapshots": on}})), controller)
		if _, open := openPorts(policy); !slices.Equal(open, want) {
			t.Errorf("snapshots %s: ports %v, want %v", on, open, want)
		}
	}
}

// TestNotesOfSnapshots say which classes there are, or what the cluster lacks.
func TestNotesOfSnapshots(t *testing.T) {
	t.Parallel()
	const lacks = "Volumes have no snapshots: this cluster does not have the API snapshot.storage.k8s.io/v1."
	for name, test := range map[string]struct {
		values    helmcli.Values
		want, not string
	}{
		"auto without the API": {helmcli.Values{}, lacks, "VolumeSnapshotClasses"},
		"false":                {helmcli.Values{Set: set("snapshots", "false")}, "", "napshot"},
		"with the API": {
			snapshots(), "cluster's to have):\n  hostpath-point-in-time: point-in-time, Delete\n" +
				"  hostpath-best-effort: best-effort, Delete\n\n", lacks,
		},
		"everything": {
			renderings()["everything"], "\n  moment: point-in-time, Retain, the driver's default\n" +
				"  plain.example.com: point-in-time, Delete\n", lacks,
		},
		"no class": {
			helmcli.Values{JSON: map[string]string{"snapshots": "true", "snapshotClasses": "[]"}},
			"cluster's to have):\n  none\n", lacks,
		},
	} {
		text := notes(t, test.values)
		if !strings.Contains(text, test.want) || strings.Contains(text, test.not) {
			t.Errorf("%s: NOTES say\n%s\nwant %q and not %q", name, text, test.want, test.not)
		}
	}
}

// TestOperatorMayHandOutSnapshots also where the cluster does not have them yet, unless its base says that nobody gets
// them. Classes it can always remove.
func TestOperatorMayHandOutSnapshots(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"auto": true, "true": true, "false": false} {
		objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t,
			withOperator(helmcli.Values{}, set("snapshots", value))))
		own := operatorRights(t, objects, operator)
		for _, wanted := range []right{
			{snapshotGroup, "volumesnapshots", "", "update"},
			{snapshotGroup, "volumesnapshotcontents/status", "", "patch"},
			{"coordination.k8s.io", "leases", snapshotLease, "update"},
		} {
			if got := allowed(own.in(true), wanted); got != want {
				t.Errorf("snapshots %s: the operator may %+v: %v, want %v", value, wanted, got, want)
			}
		}
		if !allowed(own.cluster, right{snapshotGroup, "volumesnapshotclasses", "old", "delete"}) {
			t.Errorf("snapshots %s: the operator cannot remove a class", value)
		}
		if slices.ContainsFunc(objects, func(o client.Object) bool {
			_, is := o.(*snapshotv1.VolumeSnapshotClass)
			return is
		}) {
			t.Errorf("snapshots %s: Helm makes classes beside the operator", value)
		}
	}
}
