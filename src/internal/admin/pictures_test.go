package admin_test

import (
	"bytes"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/admin"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// textInPicture is one piece of text, with the number of its line.
var textInPicture = regexp.MustCompile(`-line-(\d+)\)">([^<]*)</text>`)

// TestPictures: a picture of `driver status` shows the table as it looks now. One that does not is made anew from what
// this test prints, as docs/development/testing.md says.
func TestPictures(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	for name, status := range pictured(now) {
		var table bytes.Buffer
		if err := admin.WriteTable(&table, status, now); err != nil {
			t.Fatal(err)
		}
		picture, err := os.ReadFile(filepath.Join("../../../docs/pictures", name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		shown := map[int]string{}
		for _, piece := range textInPicture.FindAllStringSubmatch(string(picture), -1) {
			line, err := strconv.Atoi(piece[1])
			if err != nil {
				t.Fatal(err)
			}
			shown[line] += strings.ReplaceAll(html.UnescapeString(piece[2]), "\u00a0", " ")
		}
		want := map[int]string{}
		for line, text := range strings.Split(strings.TrimSpace(table.String()), "\n") {
			want[line], shown[line] = strings.TrimSpace(text), strings.TrimSpace(shown[line])
		}
		if diff := cmp.Diff(want, shown); diff != "" {
			t.Errorf("docs/pictures/%s.svg shows another table (-want +got):\n%s\nIt is now:\n%s", name, diff,
				table.String())
		}
	}
}

// pictured are a node and the controller of a cluster of three nodes, one of which lacks the disk of the pool ssd.
func pictured(now time.Time) map[string]nodeapi.Status {
	const driver, version = "kubevirt.io.hostpath-provisioner", "0.1.0"
	const size, free, disk = 252 << 30, 53200 << 20, 600 << 20
	local := func(promised int64, volumes int) nodeapi.PoolStatus {
		return nodeapi.PoolStatus{
			Name: "local", State: nodeapi.StatePresent, Backend: "plain", Enforcement: "none",
			Size: size, Free: free, Allocatable: free, Promised: promised, Volumes: volumes,
		}
	}
	ssd := func(used int64, volumes int) nodeapi.PoolStatus {
		return nodeapi.PoolStatus{
			Name: "ssd", State: nodeapi.StatePresent, Backend: "btrfs", Enforcement: "strict",
			Size: disk, Free: 519<<20 - used, Allocatable: 489<<20 - used, Promised: used, Volumes: volumes,
		}
	}
	node := func(name string, pools ...nodeapi.PoolStatus) nodeapi.NodeStatus {
		return nodeapi.NodeStatus{
			Name: name, State: "connected", Version: version, Seen: now.Add(-30 * time.Second), Pools: pools,
		}
	}
	at := func(p nodeapi.PoolStatus, path string) nodeapi.PoolStatus {
		p.Path, p.Seen = path, now
		return p
	}
	return map[string]nodeapi.Status{
		"status-node": {Driver: driver, Version: version, Node: "hpp-worker2", Pools: []nodeapi.PoolStatus{
			at(local(21<<30, 1), "/var/lib/hostpath-provisioner"), at(ssd(100<<20, 1), "/mnt/ssd"),
		}},
		"status-controller": {Driver: driver, Version: version, Nodes: []nodeapi.NodeStatus{
			node("hpp-control-plane", local(0, 0), nodeapi.PoolStatus{
				Name: "ssd", State: nodeapi.StateAbsent,
				Message: "requireMount is set and no filesystem of its own is mounted at /mnt/ssd",
			}),
			node("hpp-worker", local(2<<30, 1), ssd(0, 0)),
			node("hpp-worker2", local(21<<30, 1), ssd(100<<20, 1)),
		}},
	}
}
