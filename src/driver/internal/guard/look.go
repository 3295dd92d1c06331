package guard

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

// Look finds out what is at a pool's path. It changes nothing.
func Look(host disk.Host, path string, systemPaths []string) (f Facts, err error) {
	if f.Facts, err = host.Inspect(path); err != nil {
		return f, err
	}
	if f.SystemDisk, err = IsOn(host, f.Dev, systemPaths); err != nil || !f.CSI {
		return f, err
	}
	d, err := host.Open(path)
	if err != nil {
		return f, err
	}
	f.Marker, f.MarkerErr = ReadMarker(d)
	return f, d.Close()
}

var errChanged = errors.New("another filesystem was mounted there just now")

// Open opens a pool if it has the marker of an id; nothing is changed on a disk that came in between.
func Open(host disk.Host, path, id string) (disk.FS, *Marker, error) {
	d, err := host.Open(path)
	if err != nil {
		return nil, nil, err
	}
	m, err := ReadMarker(d)
	if err == nil && (m == nil || m.ID != id) {
		err = errChanged
	}
	if err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	return d, m, nil
}

// Make makes the directories of a pool, whatever is missing, and opens it. f is what was there before.
func Make(host disk.Host, path string, f disk.Facts) (disk.FS, error) {
	if err := host.Create(path); err != nil {
		return nil, err
	}
	d, err := host.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := d.Stat(".")
	if err == nil && ((f.Path && info.Dev != f.Dev) || (f.CSI && info.Ino != f.Ino)) {
		err = errChanged
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// IsOn reports whether a device has one of the host's paths. Not to know is an error: a pool that requires a mount
// must not be made on the root filesystem for it.
func IsOn(host disk.Host, dev uint64, paths []string) (bool, error) {
	for _, path := range paths {
		system, err := host.Device(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("see which filesystem %s is on: %w", path, err)
		}
		if err == nil && system == dev {
			return true, nil
		}
	}
	return false, nil
}

// Confirm compares a decision about a pool that is new to this node with the ids that PersistentVolumes place in it,
// and gives those that it lacks. Volumes that ought to be in it already mean that their disk is missing: to go on would
// hide that for ever. A marker says that it is the right disk, unless none of them is there: then it may lie below the
// disk that is not mounted.
func Confirm(host disk.Host, spec poolspec.Pool, d Decision, f Facts, wanted []string) (_ Decision, lacking []string) {
	if len(wanted) == 0 {
		if refused, is := OnNetwork(spec, f.Facts); is { // also with a marker, which another node has made
			return refused, nil
		}
		return d, nil
	}
	if f.Remembered.Forgotten || f.Expected.ID != "" { // what other nodes have is no wrong disk, whatever it lacks
		return d, nil
	}
	lacking = wanted
	if f.CSI {
		var err error
		if lacking, err = missing(host, spec.Path, wanted); err != nil {
			return Failed(spec.Path, err), nil
		}
	}
	if len(lacking) == 0 || (d.Action == Adopt && len(lacking) < len(wanted)) {
		return d, lacking
	}
	return Absent("VolumesMissing", "%s lacks the directories of volumes that PersistentVolumes name: %s; mount "+
		"their filesystem, or if they are lost: kubectl hpp pool forget %s --node NODE",
		spec.Path, abridge.Names(lacking), spec.Name), lacking
}

// missing gives those ids that have neither a directory nor a record.
func missing(host disk.Host, path string, ids []string) (missing []string, err error) {
	d, err := host.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	has := func(name string) bool { _, err := d.Stat(name); return err == nil }
	for _, id := range ids {
		if nodeapi.ValidateID(id) != nil || (!has(id) && !has(store.Path(id))) {
			missing = append(missing, id)
		}
	}
	return missing, nil
}
