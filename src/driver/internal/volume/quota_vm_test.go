//go:build vm

package volume_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/backend"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/projectquota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const mib = 1 << 20

// vmDisk is a disk of the VM that is mounted at root; state is what the node remembers.
type vmDisk struct{ disk, kind, root, state string }

func (d vmDisk) mount(t *testing.T, options string) {
	t.Helper()
	if err := unix.Mount("/dev/disk/"+d.disk, d.root, d.kind, 0, options); err != nil {
		t.Fatalf("mount %s with %q: %v", d.disk, options, err)
	}
}

func (d vmDisk) unmount(t *testing.T) {
	t.Helper()
	if err := unix.Unmount(d.root, 0); err != nil {
		t.Errorf("unmount %s: %v", d.disk, err)
	}
}

// onVMDisk mounts a disk for a test, which finds it empty.
func onVMDisk(t *testing.T, disk, options string) vmDisk {
	t.Helper()
	kind, _, _ := strings.Cut(disk, "-")
	d := vmDisk{disk: disk, kind: kind, root: t.TempDir(), state: t.TempDir()}
	d.mount(t, options)
	t.Cleanup(func() {
		if err := os.RemoveAll(filepath.Join(d.root, "pool")); err != nil {
			t.Error(err)
		}
		d.unmount(t)
	})
	return d
}

func (d vmDisk) open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Join(d.root, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// enforcementOff stops the enforcement of limits as quotaoff(8) does; the kernel goes on counting.
func (d vmDisk) enforcementOff(t *testing.T) {
	t.Helper()
	const (
		projects = 2              // PRJQUOTA
		quotaOff = 0x800003       // Q_QUOTAOFF
		xOff     = 'X'<<8 + 2     // Q_XQUOTAOFF
		enforced = uint32(1 << 5) // FS_QUOTA_PDQ_ENFD
	)
	command, flags := uintptr(quotaOff), enforced
	if d.kind == "xfs" {
		command = xOff
	}
	top, err := os.Open(d.root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = top.Close() }()
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, top.Fd(), command<<8|projects, 0, uintptr(unsafe.Pointer(&flags)), 0, 0); errno != 0 {
		t.Fatalf("switch the enforcement of %s off: %v", d.disk, errno)
	}
}

func asks(q poolspec.Quota) func(*poolspec.Pool) {
	return func(p *poolspec.Pool) { p.Quota = q }
}

func (d vmDisk) start(t *testing.T, q poolspec.Quota) driver {
	t.Helper()
	return d.host().start(t, asks(q))
}

func (d vmDisk) host() host {
	return host{state: d.state, path: filepath.Join(d.root, "pool"), log: slog.New(slog.DiscardHandler), now: time.Now}
}

// TestVMQuotaAtStart: what is off when the driver starts is seen and said, and where it can be switched on and is required, it is.
func TestVMQuotaAtStart(t *testing.T) {
	for name, test := range map[string]struct {
		disk, options string
		says          string // of the remedy
		enables       bool   // where quota is required
	}{
		"xfs off":                  {disk: "xfs", says: "mount the filesystem with the option prjquota"},
		"xfs counting":             {disk: "xfs", options: "pqnoenforce", says: "counted but not enforced", enables: true},
		"ext4 counting":            {disk: "ext4", says: "counted but not enforced", enables: true},
		"ext4 without the feature": {disk: "ext4-plain", says: "tune2fs -O quota,project"},
	} {
		t.Run(name, func(t *testing.T) {
			d := onVMDisk(t, test.disk, test.options)
			var log bytes.Buffer
			h := d.host()
			h.log = slog.New(slog.NewTextHandler(&log, nil))
			auto := h.start(t, asks(poolspec.QuotaAuto))
			v, err := auto.Create(t.Context(), spec("pvc-1"))
			if err != nil || v.Enforcement != volume.None || v.Backend != backend.NamePlain {
				t.Errorf("auto: %+v, %v", v, err)
			}
			if !strings.Contains(log.String(), test.says) || !auto.events.tell("PoolPresent", test.says) {
				t.Errorf("nobody is told %q: %v\n%s", test.says, auto.events.told, log.String())
			}
			if told := strings.Join(auto.cluster.told, "; "); !strings.Contains(told, "SizeNotEnforced") {
				t.Errorf("the claim was told %q", told)
			}

			required := d.start(t, poolspec.QuotaRequired)
			v, err = required.Create(t.Context(), spec("pvc-2"))
			if required.events.tell("QuotaEnabled", "project") != test.enables {
				t.Errorf("events %v", required.events.told)
			}
			if test.enables {
				if err != nil || v.Enforcement != volume.Cooperative {
					t.Errorf("required: %+v, %v", v, err)
				}
				return
			}
			wants(t, err, volume.ErrPoolAbsent, "quota is required", test.says)
			if s := required.set.Status()[0]; s.Present || s.Reason != "QuotaUnavailable" {
				t.Errorf("required: %+v", s)
			}
		})
	}
}

// TestVMQuotaMountedWithout: the filesystem comes back without the option.
func TestVMQuotaMountedWithout(t *testing.T) {
	for _, want := range []poolspec.Quota{poolspec.QuotaAuto, poolspec.QuotaRequired} {
		t.Run(string(want), func(t *testing.T) {
			d := onVMDisk(t, "xfs", "prjquota")
			m := d.start(t, want)
			v, err := m.Create(t.Context(), spec("pvc-1"))
			if err != nil {
				t.Fatal(err)
			}
			d.unmount(t) // nothing holds it
			d.mount(t, "")
			m.lost(t, v, want)
			d.unmount(t)
			d.mount(t, "prjquota")
			if s := checked(t, m.set); s.EnforcementLost || s.Refused > 0 || !m.events.tell("EnforcementRestored", "cooperative") {
				t.Errorf("mounted with it again: %+v, events %v", s, m.events.told)
			}
			if got := accounts(t, d.root)[v.ProjectID]; got.Limit.Bytes != v.Bytes {
				t.Errorf("the limit is %+v", got)
			}
			if _, err := m.Create(t.Context(), spec("pvc-3")); err != nil {
				t.Errorf("create: %v", err)
			}
		})
	}
}

// TestVMQuotaSwitchedOff: enforcement is stopped under the driver. Where quota is required it is switched on again at once.
func TestVMQuotaSwitchedOff(t *testing.T) {
	for _, disk := range []string{"xfs", "ext4"} {
		for _, want := range []poolspec.Quota{poolspec.QuotaAuto, poolspec.QuotaRequired} {
			t.Run(disk+" "+string(want), func(t *testing.T) {
				d := onVMDisk(t, disk, "prjquota")
				m := d.start(t, want)
				v, err := m.Create(t.Context(), spec("pvc-1"))
				if err != nil {
					t.Fatal(err)
				}
				d.enforcementOff(t)
				if want == poolspec.QuotaAuto {
					m.lost(t, v, want)
					return
				}
				if s := checked(t, m.set); s.EnforcementLost || s.Enforcement != "cooperative" || !m.events.tell("QuotaEnabled", "project") {
					t.Errorf("%+v, events %v", s, m.events.told)
				}
				if s, err := projectquota.Probe(d.open(t, ".")); err != nil || !s.Enforcing {
					t.Errorf("the kernel says %+v, %v", s, err)
				}
			})
		}
	}
}

// lost checks a pool whose quota is off now: volumes are served, and made only where quota is not required.
func (m driver) lost(t *testing.T, v volume.Volume, want poolspec.Quota) {
	t.Helper()
	if s := checked(t, m.set); !s.Present || !s.EnforcementLost || !m.events.tell("EnforcementLost", "prjquota") {
		t.Errorf("%+v, events %v", s, m.events.told)
	}
	if err := m.Publish(t.Context(), volume.PublishRequest{ID: v.ID, Target: target}); err != nil {
		t.Errorf("publish: %v", err)
	}
	if err := m.Unpublish(t.Context(), v.ID, target); err != nil {
		t.Error(err)
	}
	if got, _, err := m.Get(t.Context(), v.ID); err != nil || got.Enforcement != volume.None {
		t.Errorf("get: %+v, %v", got, err)
	}
	_, err := m.Create(t.Context(), spec("pvc-2"))
	if want == poolspec.QuotaRequired {
		wants(t, err, volume.ErrPoolNotHere, "quota is required", "prjquota")
	} else if err != nil {
		t.Errorf("create: %v", err)
	}
}

// TestVMAdminsProject: the pool's directory is in a project that an admin has limited.
func TestVMAdminsProject(t *testing.T) {
	for _, disk := range []string{"xfs", "ext4"} {
		t.Run(disk, func(t *testing.T) {
			d := onVMDisk(t, disk, "prjquota")
			if err := os.Mkdir(filepath.Join(d.root, "pool"), 0o755); err != nil {
				t.Fatal(err)
			}
			own := d.open(t, "pool")
			if err := errors.Join(projectquota.SetProjectID(own, 42, true), projectquota.SetLimit(own, 42, projectquota.Limit{Bytes: 32 * mib})); err != nil {
				t.Fatal(err)
			}
			auto := d.start(t, poolspec.QuotaAuto)
			v, err := auto.Create(t.Context(), spec("pvc-1"))
			if err != nil || v.Enforcement != volume.None {
				t.Fatalf("auto: %+v, %v", v, err)
			}
			if !auto.events.tell("PoolPresent", "project 42, which has a limit of 33554432 bytes") {
				t.Errorf("events %v", auto.events.told)
			}
			if err := write(t, filepath.Join(d.root, "pool/csi/pvc-1/data"), 8); err != nil {
				t.Error(err)
			}
			if q, err := projectquota.Get(own, 42); err != nil || q.Usage.Bytes < 8*mib || q.Limit.Bytes != 32*mib {
				t.Errorf("the admin's project counts %+v, %v", q, err)
			}
			if room, _, err := auto.set.Capacity(t.Context(), "local"); err != nil || room > 32*mib {
				t.Errorf("capacity %d, %v; want at most the project's limit", room, err)
			}
			if s := checked(t, auto.set); !s.Present || s.EnforcementLost {
				t.Errorf("a second look: %+v", s)
			}
			if err := auto.Delete(t.Context(), "pvc-1"); err != nil {
				t.Error(err)
			}

			required := d.start(t, poolspec.QuotaRequired)
			if v, err := required.Create(t.Context(), spec("pvc-2")); err != nil || v.Enforcement != volume.Cooperative || !required.events.tell("ProjectLeft", "project 42") {
				t.Errorf("required: %+v, %v, events %v", v, err, required.events.told)
			}
			if err := required.Delete(t.Context(), "pvc-2"); err != nil {
				t.Error(err)
			}
			if err := projectquota.SetLimit(own, 42, projectquota.Limit{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestVMUserNamespace: a driver in a user namespace sees that quota is on, and may not set limits.
func TestVMUserNamespace(t *testing.T) {
	for _, disk := range []string{"xfs", "ext4"} {
		t.Run(disk, func(t *testing.T) {
			d := onVMDisk(t, disk, "prjquota")
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run=^TestUserNamespaceHelper$")
			cmd.Env = append(os.Environ(), "HPP_ROOT="+d.root, "HPP_STATE="+d.state)
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{Size: 1}},
			}
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "--- PASS: TestUserNamespaceHelper") {
				t.Errorf("in a user namespace: %v\n%s", err, out)
			}
		})
	}
}

// TestUserNamespaceHelper is what runs there.
func TestUserNamespaceHelper(t *testing.T) {
	d := vmDisk{root: os.Getenv("HPP_ROOT"), state: os.Getenv("HPP_STATE")}
	required := d.start(t, poolspec.QuotaRequired)
	_, err := required.Create(t.Context(), spec("pvc-1"))
	wants(t, err, volume.ErrPoolAbsent, "quota is required", "may not set limits", "privileged")

	auto := d.start(t, poolspec.QuotaAuto)
	v, err := auto.Create(t.Context(), spec("pvc-1"))
	if err != nil || v.Enforcement != volume.None || !auto.events.tell("PoolPresent", "may not set limits") {
		t.Errorf("auto: %+v, %v, events %v", v, err, auto.events.told)
	}
	if s := checked(t, auto.set); !s.Present || s.EnforcementLost {
		t.Errorf("a second look: %+v", s)
	}
	err = errors.Join(auto.Publish(t.Context(), volume.PublishRequest{ID: "pvc-1", Target: target}), auto.Unpublish(t.Context(), "pvc-1", target), auto.Delete(t.Context(), "pvc-1"))
	if err != nil {
		t.Errorf("a plain volume's life: %v", err)
	}
}
