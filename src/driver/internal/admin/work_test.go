package admin_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// TestMeasure: ids, a pool or the whole node are measured; snapshots and what cannot be used are not.
func TestMeasure(t *testing.T) {
	client := serve(t, &domain{
		status: []nodeapi.PoolStatus{
			{Name: "local", State: nodeapi.StatePresent}, {Name: "away", Message: "mount it"},
		},
		volumes: map[string]entry{
			"a": {"local", ledger.Volume{}}, "b": {"local", ledger.Volume{QuotaID: 7, Counted: true}},
			"c": {"other", ledger.Volume{}}, "d": {"local", ledger.Volume{Snapshot: true}},
			"e": {"local", ledger.Volume{Refused: true}},
		},
		measure: func(id string, progress func(files, bytes int64)) error {
			progress(2, 4096)
			if id == "b" {
				return errors.New("the disk is gone")
			}
			progress(5, 3<<30)
			return nil
		},
	})
	const (
		a, b, c = "a: 2 files counted\na: 5 files counted\na: 3Gi, 5 files\n",
			"b: 2 files counted\nb: not measured: the disk is gone\n", "c: 2 files counted\nc: 5 files counted\n" +
				"c: 3Gi, 5 files\n"
		failed = "1 volumes could not be measured"
	)
	for _, test := range []struct {
		args []string
		want string
		says []string
	}{
		{[]string{"c"}, c + "1 volumes measured\n", nil},
		{nil, a + b + c + "2 volumes measured\n", []string{failed}},
		{[]string{"--pool", "local"}, a + b + "1 volumes measured\n", []string{failed}},
		{[]string{"--pool", "away"}, "0 volumes measured\n", []string{"mount it"}},
		{[]string{"--pool", "no"}, "0 volumes measured\n", []string{"no"}},
		{[]string{"c", "--pool", "local"}, "c: not measured: invalid request: volume c is in pool other, not in " +
			"local\n0 volumes measured\n", []string{failed}},
	} {
		got, err := client.command(t, append([]string{"volume", "measure"}, test.args...)...)
		says(t, err, test.says...)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%v: %s", test.args, diff)
		}
	}
	got, err := client.command(t, "volume", "measure", "-o", "json")
	says(t, err, failed)
	var work nodeapi.Work
	if err := json.Unmarshal([]byte(got), &work); err != nil || work.Done != 2 || work.Failed != 1 ||
		work.Bytes != 6<<30+4096 || len(work.Volumes) != 3 {
		t.Errorf("%s: %v", got, err)
	}
}

// TestJSON: every command that changes something answers with one document, so that half of one is seen as such.
func TestJSON(t *testing.T) {
	record := store.Record{
		ID: "pvc-1", Pool: "local", Bytes: 10 << 30, Claim: nodeapi.Claim{Namespace: "shop", Name: "data", UID: "77"},
	}
	client := serve(t, &domain{
		adopt:    func(string, int64) (store.Record, error) { return record, nil },
		undelete: func(string) (store.Record, error) { return record, nil },
		discard:  func(string, string) error { return nil },
		forget:   func(string) error { return nil },
		take:     func(string, string) error { return nil },
	})
	for _, test := range []struct {
		want string
		args []string
	}{
		{"volume pvc-1 is in the trash", []string{"volume", "discard", "pvc-1"}},
		{
			"pool local was never used on this node; it is noted that its volumes are gone",
			[]string{"pool", "forget", "local"},
		},
		{"pool local is this cluster's now", []string{"pool", "take", "local", "--from", "x"}},
	} {
		got, err := client.command(t, append(test.args, "--output", "json")...)
		says(t, err)
		if want := "{\n  \"message\": \"" + test.want + "\"\n}\n"; got != want {
			t.Errorf("%v: %s, want %s", test.args, got, want)
		}
	}
	for _, args := range [][]string{{"volume", "adopt", "pvc-1"}, {"volume", "undelete", "pvc-1.5"}} {
		got, err := client.command(t, append(args, "-o", "json")...)
		says(t, err)
		var answer struct{ Manifests []struct{ Kind string } }
		if err := json.Unmarshal([]byte(got), &answer); err != nil || len(answer.Manifests) != 2 ||
			answer.Manifests[0].Kind != "PersistentVolume" || answer.Manifests[1].Kind != "PersistentVolumeClaim" {
			t.Errorf("%v: %s: %v", args, got, err)
		}
		_, err = client.command(t, append(args, "-o", "xml")...)
		says(t, err, "--output", "xml")
	}
	_, err := client.command(t, "volume", "enforce", "a", "--background")
	says(t, err, "unknown flag")
}
