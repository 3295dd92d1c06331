package admin_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// TestDirectory runs the commands about directories, for a person and for a program.
func TestDirectory(t *testing.T) {
	client := serve(t, &domain{})
	take := []string{
		"directory", "take", "pvc-1", "--path", "/old/pvc-1", "--pool", "local", "--size", "10Gi",
		"--claim", "shop/data", "--fs-group", "7",
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"directory", "look", "/old/pvc-1", "--pool", "local"}, "/old/pvc-1: 3 files, 10Mi, xfs\n" +
			"its size would not be enforced: \n"},
		{take, "/old/pvc-1 is volume pvc-1 of 10Gi in pool local: 2 files are counted so far; no pod gets it before " +
			"all are\n"},
		{[]string{"directory", "return", "pvc-1"}, "pvc-1 is at /old/pvc-1 again\n"},
		{
			[]string{"directory", "return", "pvc-2"},
			"2 files of pvc-2 do not count to it any more; ask again until all do not\n",
		},
	} {
		got, err := client.command(t, test.args...)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%v: %v %s", test.args, err, diff)
		}
	}
	got, err := client.command(t, append(take, "--output", "json")...)
	var taken nodeapi.TakenDirectory
	if err == nil {
		err = json.Unmarshal([]byte(got), &taken)
	}
	want := nodeapi.TakenDirectory{
		Node: "worker-1", ID: "pvc-1", Pool: "local", Path: "/old/pvc-1", Bytes: 10 << 30, Enforcing: true, Files: 2,
		Driver: "hpp", TopologyKey: "topology/node",
	}
	if diff := cmp.Diff(want, taken); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
}
