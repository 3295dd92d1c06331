package poolspec_test

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

func TestVolumeIn(t *testing.T) {
	const pv = "pvc-145c785e-ab83-11e7-9432-4201ac1fd019"
	inline := "csi-" + strings.Repeat("0a", 32)
	for path, want := range map[string]string{
		"/ceph/pvs": "", "/pvc-data": "", "/ceph/" + pv[:len(pv)-1]: "", "/csi-a/b": "", "/x" + inline: "",
		"/ceph/" + pv: pv, "/" + pv + "/d": pv, "/ceph/shop-data-" + pv + "/d": "shop-data-" + pv,
		"/storage/" + pv + "_shop_data/d": pv + "_shop_data", "/ceph/.deleted-" + pv: ".deleted-" + pv,
		"/pool/csi/" + inline + "/d": inline,
	} {
		if got := poolspec.VolumeIn(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
