package rootfs

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/scratch"
)

// tree makes files, and links where the value starts with "->".
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := content, len(content) > 2 && content[:2] == "->"; link {
			err = os.Symlink(target[2:], path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestSlimRemovesOnlyWhatANodeDoesNotNeed(t *testing.T) {
	root := tree(t, map[string]string{
		"var/cache/apt/pkgcache.bin":                                             "x",
		"usr/share/doc/bash/copyright":                                           "x",
		"lib/systemd/system/multi-user.target.wants/getty.target":                "->../getty.target",
		"lib/systemd/system/sockets.target.wants/dbus.socket":                    "->../dbus.socket",
		"lib/systemd/system/sockets.target.wants/systemd-udevd-x":                "x",
		"etc/systemd/system/timers.target.wants/apt-daily.timer":                 "x",
		"etc/systemd/journald.conf":                                              "[Journal]\n",
		"usr/bin/bash":                                                           "x",
		"var/lib/dpkg/status":                                                    "x",
		"lib/systemd/system/sysinit.target.wants/systemd-sysctl.x":               "x",
		"lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service": "x",
	})
	if err := slim(root); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"etc/systemd/journald.conf",
		"lib/systemd/system/sockets.target.wants/dbus.socket",
		"lib/systemd/system/sysinit.target.wants/systemd-sysctl.x",
		"usr/bin/bash",
		"var/lib/dpkg/status",
	}
	if diff := cmp.Diff(want, files(t, root)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	conf, err := os.ReadFile(filepath.Join(root, "etc/systemd/journald.conf"))
	if err != nil || string(conf) != "[Journal]\nReadKMsg=no\n" {
		t.Errorf("journald.conf is %q (%v)", conf, err)
	}
}

func files(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			path, err = filepath.Rel(root, path)
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestCollectorTakesEveryLinkOnTheWay(t *testing.T) {
	root := tree(t, map[string]string{
		"sbin":                       "->usr/sbin",
		"usr/sbin/iptables":          "->/etc/alternatives/iptables",
		"etc/alternatives/iptables":  "->/sbin/iptables-nft",
		"usr/sbin/iptables-nft":      "->xtables-nft-multi",
		"usr/sbin/xtables-nft-multi": "#!/bin/sh\n",
	})
	c := collector{tree: root, files: map[string]scratch.File{}}
	if err := c.add("usr/sbin/iptables"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"etc/alternatives/iptables", "sbin", "usr/sbin/iptables", "usr/sbin/iptables-nft", "usr/sbin/xtables-nft-multi",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(c.files))); diff != "" {
		t.Errorf("collected (-want +got):\n%s", diff)
	}
}

func TestCollectorEndsOnALoopOfLinks(t *testing.T) {
	root := tree(t, map[string]string{"a": "->b", "b": "->a"})
	c := collector{tree: root, files: map[string]scratch.File{}}
	if err := c.add("a"); err == nil {
		t.Error("no error for links that lead to each other")
	}
}

// A library that only a plugin links to is needed as much as a program's own.
func TestCollectorTakesLibrariesOfARealProgram(t *testing.T) {
	c := collector{tree: "/", files: map[string]scratch.File{}}
	if err := c.add("bin/tar"); err != nil {
		t.Fatal(err)
	}
	libc := false
	for path := range c.files {
		libc = libc || filepath.Base(path) == "libc.so.6"
	}
	if !libc {
		t.Errorf("tar without its C library: %v", slices.Sorted(maps.Keys(c.files)))
	}
}
