package pooldir

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool")
	if err := Make(Pool{Path: path, Name: "some", Volumes: 3}); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err := filepath.WalkDir(path, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		name, _ := filepath.Rel(path, file)
		got[name] = info.Mode().String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		".": "drwx------", "csi": "drwx------", "csi/.hpp": "drwx------", "csi/.hpp/pool.json": "-rw-------",
		"csi/.hpp/volumes": "drwx------", "csi/.hpp/staging": "drwx------", "csi/.hpp/trash": "drwx------",
	}
	for n := range 3 {
		want["csi/"+VolumeID(n)] = "drwxrwxrwx"
		want["csi/.hpp/volumes/"+VolumeID(n)+".json"] = "-rw-------"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRecord(t *testing.T) {
	path := t.TempDir()
	if err := Make(Pool{Path: path, Name: "some", Volumes: 1}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(path, "csi/.hpp/volumes", VolumeID(0)+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "created")
	want := map[string]any{
		"version": 2.0, "id": VolumeID(0), "pool": "some", "bytes": float64(Bytes), "backend": "plain", "mode": 511.0,
		"onDelete": "trash",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMakeRefusesAPoolThatIsThere(t *testing.T) {
	path := t.TempDir()
	if err := Make(Pool{Path: path, Name: "some", Volumes: 1}); err != nil {
		t.Fatal(err)
	}
	if err := Make(Pool{Path: path, Name: "some", Volumes: 1}); err == nil {
		t.Error("it was made a second time")
	}
}

func TestFill(t *testing.T) {
	dir := t.TempDir()
	if err := Fill(dir, 2001, 5); err != nil {
		t.Fatal(err)
	}
	files, bytes := 0, int64(0)
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			info, unread := e.Info()
			if unread != nil {
				return unread
			}
			files, bytes = files+1, bytes+info.Size()
		}
		return err
	})
	if err != nil || files != 2001 || bytes != 5*2001 {
		t.Errorf("%d files with %d bytes in all, want 2001 of 5: %v", files, bytes, err)
	}
}
