package dockercli

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

func TestWaitForLayerHearsTheRegistryOnly(t *testing.T) {
	for said, want := range map[string]bool{
		"v1.37.0: Pulling from kindest/node\n":                                     false,
		"v1.37.0: Pulling from kindest/node\nabc: Pulling fs layer\n":              true,
		"v1.37.0: Pulling from kindest/node\nDigest: sha256:0\nStatus: up to date": true,
		"": false,
	} {
		var heard atomic.Bool
		waitForLayer(strings.NewReader(said), &heard)
		if heard.Load() != want {
			t.Errorf("%q: heard %t, want %t", said, heard.Load(), want)
		}
	}
}

func TestPullReturnsDockersLastWords(t *testing.T) {
	bin := t.TempDir()
	fake := "#!/bin/sh\n[ \"$2\" = good ] && exit 0\necho first >&2\necho 'no such host' >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if err := Pull(t.Context(), "good"); err != nil {
		t.Error(err)
	}
	if err := Pull(t.Context(), "bad"); err == nil || err.Error() != "no such host" {
		t.Errorf("error %v, want docker's last line alone", err)
	}
}
