package backend_test

import (
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/backend"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// locked is a disk whose quota the driver may not ask for: in a user namespace, or behind a security module.
type locked struct {
	poolfs.FS
	poolfs.Quotas
}

func (locked) Quota() (poolfs.Quota, string, error) {
	return poolfs.QuotaOff, "", &fs.PathError{Op: "quotactl_fd", Path: "csi", Err: unix.EPERM}
}

func TestWithoutTheRightToAskAPoolIsPlainUnlessQuotaIsRequired(t *testing.T) {
	choice, err := backend.Choose(locked{}, poolspec.QuotaAuto)
	if err != nil || choice.Name() != "plain" || !strings.Contains(choice.Why, "may not ask") {
		t.Errorf("auto: %+v, %v; want plain and why", choice, err)
	}
	if choice, err := backend.Choose(locked{}, poolspec.QuotaRequired); err == nil {
		t.Errorf("required: %+v; want an error", choice)
	}
}
