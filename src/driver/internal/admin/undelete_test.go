package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// asClaim is the claim of pvc-1, behind its PersistentVolume.
const asClaim = `---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
  namespace: shop
spec:
  accessModes:
  - ReadWriteOnce
  resources:
    requests:
      storage: 10Gi
  storageClassName: local
  volumeName: pvc-1
`

func TestUndelete(t *testing.T) {
	record := store.Record{
		ID: "pvc-1", Pool: "local", Bytes: 10 << 30, Claim: nodeapi.Claim{Namespace: "shop", Name: "data", UID: "77"},
	}
	answer := error(nil)
	client := serve(t, &domain{undelete: func(entry string) (store.Record, error) {
		if entry != "pvc-1.1795" {
			t.Errorf("undelete %q", entry)
		}
		return record, answer
	}})
	got, err := client.command(t, "volume", "undelete", "pvc-1.1795", "--storage-class", "local")
	if err != nil {
		t.Fatal(err)
	}
	const want = asVolume + asClaim
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	record.Claim = nodeapi.Claim{}
	if got, err := client.command(t, "volume", "undelete", "pvc-1.1795"); err != nil ||
		strings.Contains(got, "PersistentVolumeClaim") || strings.Contains(got, "---") {
		t.Errorf("of no claim: %s, %v", got, err)
	}
	for _, refusal := range []error{
		store.ErrNotFound, store.ErrUndeletable, volume.ErrExists, nodeapi.ErrNamed, nodeapi.ErrClusterUnknown,
		ledger.ErrNoSpace, pool.ErrAbsent,
	} {
		answer = fmt.Errorf("%w: because", refusal)
		_, err := client.command(t, "volume", "undelete", "pvc-1.1795")
		says(t, err, "refused", refusal.Error(), "because")
	}
}

func TestDeletedOfANode(t *testing.T) {
	d := &domain{deleted: []nodeapi.DeletedVolume{
		{Entry: "pvc-1.1", ID: "pvc-1", Pool: "local", Claim: "shop/data", Bytes: 1 << 30, Deleted: time.Unix(1, 0)},
		{Entry: "pvc-2.2", ID: "pvc-2", Pool: "local", Bytes: 5 << 20, Deleted: time.Unix(2, 0), Due: time.Unix(3, 0)},
	}}
	client := serve(t, d)
	got, err := client.command(t, "volume", "list", "--deleted")
	for _, line := range []string{
		"ENTRY NODE POOL", "pvc-1.1 worker-1 local shop/data 1Gi", "pvc-2.2 worker-1 local - 5Mi",
	} {
		if !strings.Contains(strings.Join(strings.Fields(got), " "), line) {
			t.Errorf("%s, %v; want %s", got, err, line)
		}
	}
	got, err = client.command(t, "volume", "list", "--deleted", "--output", "json")
	if err != nil || !strings.Contains(got, `"entry": "pvc-1.1"`) {
		t.Errorf("%s, %v", got, err)
	}
	_, err = client.command(t, "volume", "list", "--deleted", "--output", "xml")
	says(t, err, "--output", "xml")
	d.listing = fmt.Errorf("%w: local", pool.ErrAbsent)
	_, err = client.command(t, "volume", "list", "--deleted")
	says(t, err, "refused", "local")
}
