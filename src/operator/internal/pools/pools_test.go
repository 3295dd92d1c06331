package pools_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

func TestFromSpecKnowsEveryField(t *testing.T) {
	got, err := pools.FromSpec(v1beta1.HostPathProvisionerSpec{StoragePools: []v1beta1.StoragePool{
		{
			Name: "fast", Path: "/data/fast", Scope: "shared", NodeSelector: map[string]string{"disk": "nvme"}, RequireMount: new(false), Quota: "required",
			Reserve: new(intstr.FromString("10Gi")), Overcommit: new(1.5), MaxVolumes: 40, Inline: true, Trash: &v1beta1.Trash{Retention: "36h"},
			PVCTemplate: &corev1.PersistentVolumeClaimSpec{StorageClassName: new("nfs")},
		},
		{Name: "slow", Path: "/data/slow", Reserve: new(intstr.FromInt32(4096))},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := poolspec.Config{StoragePools: []poolspec.Pool{
		{
			Name: "fast", Path: "/data/fast", Scope: poolspec.ScopeShared, NodeSelector: map[string]string{"disk": "nvme"}, RequireMount: new(false),
			Quota: poolspec.QuotaRequired, Reserve: poolspec.Reserve{Bytes: 10 << 30}, Overcommit: 1.5, MaxVolumes: 40, Inline: true,
			Trash:       poolspec.Trash{Retention: poolspec.Duration(36 * time.Hour)},
			PVCTemplate: map[string]any{"storageClassName": "nfs", "resources": map[string]any{}},
		},
		{Name: "slow", Path: "/data/slow", Scope: poolspec.ScopeNode, Quota: poolspec.QuotaAuto, Reserve: poolspec.Reserve{Bytes: 4096}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFromSpecMakesPathConfigAPool(t *testing.T) {
	got, err := pools.FromSpec(v1beta1.HostPathProvisionerSpec{PathConfig: &v1beta1.PathConfig{Path: "/var/hpvolumes", UseNamingPrefix: true}})
	want := poolspec.Config{StoragePools: []poolspec.Pool{{
		Name: "legacy", Path: "/var/hpvolumes", Scope: poolspec.ScopeNode, Quota: poolspec.QuotaAuto,
	}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if none, err := pools.FromSpec(v1beta1.HostPathProvisionerSpec{}); len(none.StoragePools) > 0 || err != nil {
		t.Error(none, err)
	}
}

func TestFromSpecNamesWhatItCannotRead(t *testing.T) {
	got, err := pools.FromSpec(v1beta1.HostPathProvisionerSpec{StoragePools: []v1beta1.StoragePool{
		{Name: "a", Path: "/a"},
		{Name: "b", Path: "/b", Reserve: new(intstr.FromString("five%")), Trash: &v1beta1.Trash{Retention: "soon"}},
	}})
	const want = `spec.storagePools[1].reserve: "five%" is no percentage: want a number before the sign, such as "5%"` + "\n" +
		`spec.storagePools[1].trash.retention: "soon" is no duration: want a number with a unit of s, m or h, such as "36h" or "0s"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if len(got.StoragePools) != 2 || got.StoragePools[1].Path != "/b" {
		t.Errorf("the rest was not read: %+v", got)
	}
}
