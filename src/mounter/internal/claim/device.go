package claim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// device is a claim that is a block device.
type device struct {
	path string
	log  *slog.Logger

	kind    string // of the filesystem, once it is known
	suspect int64  // where the device was not blank, when it was read last
}

// open mounts the device's filesystem, which a blank device gets first.
func (d *device) open(ctx context.Context) (*os.File, error) {
	if d.kind == "" {
		kind, err := d.provide(ctx)
		if err != nil {
			return nil, err
		}
		d.kind = kind
	}
	// Sizes of volumes are enforced where the kernel and the filesystem have project quota.
	mount, err := bindmount.Device(d.path, d.kind, "prjquota")
	if err != nil {
		mount, err = bindmount.Device(d.path, d.kind)
	}
	// A device, or a filesystem that is mounted, is read-only: its volumes can still be read.
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EBUSY) {
		readOnly, failed := bindmount.Device(d.path, d.kind, "ro")
		if failed == nil {
			return readOnly, nil
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		d.kind = ""
		return nil, fmt.Errorf("%w; the node's kernel log may say more", err)
	}
	return mount, nil
}

// provide names the filesystem on the device. Where there is none, and nothing else either, it makes one.
func (d *device) provide(ctx context.Context) (string, error) {
	info, err := os.Stat(d.path)
	if err != nil {
		return "", err
	}
	if info.Mode().Type() != os.ModeDevice {
		return "", fmt.Errorf("%s is no block device", d.path)
	}
	kind, err := probeFilesystem(ctx, d.path)
	if err != nil || kind != "" {
		return kind, err
	}
	if err := d.checkBlank(ctx); err != nil {
		return "", err
	}
	d.log.InfoContext(ctx, "the device is blank; making a filesystem", logging.KeyPath, d.path)
	return "xfs", d.format(context.WithoutCancel(ctx)) // half a filesystem would be nobody's to remove
}

// probeFilesystem asks blkid what is on a device: the name of a filesystem that can be mounted, "" where
// it finds nothing.
func probeFilesystem(ctx context.Context, path string) (string, error) {
	//nolint:gosec // the path is the device of the claim; no shell sees it
	out, err := exec.CommandContext(ctx, "blkid", "-p", "-o", "export", path).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		switch exit.ExitCode() { // blkid(8), EXIT STATUS
		case 2:
			return "", nil // or it cannot be read, which the next step finds out
		case 8:
			return "", fmt.Errorf("%w: %s has the signatures of several filesystems or partition tables%s",
				ErrNotBlank, path, wayOut(path))
		}
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("blkid %s: %w", path, err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		found[key] = value
	}
	if slices.Contains([]string{"xfs", "ext4", "btrfs"}, found["TYPE"]) && found["PTTYPE"] == "" {
		return found["TYPE"], nil
	}
	return "", fmt.Errorf("%w: %s has a signature of %s: want one filesystem, xfs, ext4 or btrfs, or nothing at all%s",
		ErrNotBlank, path, strings.TrimSpace(found["TYPE"]+" "+found["PTTYPE"]), wayOut(path))
}

// format makes a filesystem on a blank device. Nothing is forced: mkfs refuses what it finds a filesystem on.
func (d *device) format(ctx context.Context) error {
	// Not to discard is faster, and a blank device has nothing to discard.
	//nolint:gosec // as for blkid
	if out, err := exec.CommandContext(ctx, "mkfs.xfs", "-q", "-K", d.path).CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.xfs %s: %w: %s", d.path, err, bytes.TrimSpace(out))
	}
	f, err := os.OpenFile(d.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

const (
	chunk = 4 << 20 // bytes that are read at once
	say   = 30 * time.Second
)

// checkBlank fails unless every byte of the device was read and is zero. That nobody knows a signature does not mean
// that nobody's data is there.
func (d *device) checkBlank(ctx context.Context) error {
	f, err := os.OpenFile(d.path, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		return fmt.Errorf("open the device for this mounter alone: %w", err)
	}
	defer func() { _ = f.Close() }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return errors.Join(err, fmt.Errorf("%s has %d bytes", d.path, size))
	}
	at, err := d.search(ctx, f, size)
	if err != nil {
		return fmt.Errorf("read the device, to see that it is blank: %w", err)
	}
	if at == size {
		return nil
	}
	d.suspect = at
	return fmt.Errorf("%w: %s has no filesystem that blkid knows, and byte %d is not zero, so it may hold somebody's "+
		"data%s", ErrNotBlank, d.path, at, wayOut(d.path))
}

// wayOut is what a person does about a device that is refused.
func wayOut(path string) string { return "; if its data may go, run in this pod: mkfs.xfs -f " + path }

// search finds the first byte that is not zero, size where there is none. It begins where one was the last time: a
// device that was refused is not read again from its beginning every minute.
func (d *device) search(ctx context.Context, f io.ReaderAt, size int64) (int64, error) {
	buffer, zero := make([]byte, chunk), make([]byte, chunk)
	if n, err := f.ReadAt(buffer[:1], d.suspect); err != nil || (n == 1 && buffer[0] != 0) {
		return d.suspect, err
	}
	said := time.Now()
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		part := buffer[:min(chunk, size-at)]
		if _, err := f.ReadAt(part, at); err != nil {
			return at, err
		}
		if !bytes.Equal(part, zero[:len(part)]) {
			return at + int64(slices.IndexFunc(part, func(b byte) bool { return b != 0 })), nil
		}
		at += int64(len(part))
		if time.Since(said) > say {
			d.log.InfoContext(ctx, "reading the device, to see that it is blank", logging.KeyPath, d.path,
				logging.KeyRead, at, logging.KeyBytes, size)
			said = time.Now()
		}
	}
	return size, nil
}
