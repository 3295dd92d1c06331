package manager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/wire"
)

const taken = "there is a PersistentVolume " + pvName + " already; nothing is made"

// TestWhatIsInUse is not touched by a request to make it, such as one that somebody repeats: pods may have other modes.
func TestWhatIsInUse(t *testing.T) {
	n := start(t)
	path := filepath.Join(n.Base, dir)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	n.create(t, n.persistentVolume(corev1.VolumeBound))
	n.expect(t, "make", http.StatusConflict, taken, dir)(n.send(t, http.MethodPost, good, n.fields()))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory %v, error %v; want drwx------", info, err)
	}
	n.cluster.PrependReactor("get", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API is away")
	})
	n.expect(t, "without the API", http.StatusInternalServerError, "look for the PersistentVolume: the API is away",
		dir)(
		n.send(t, http.MethodPost, good, n.fields()))
}

// TestAVolumesLife on one node: made when it is asked for, twice as well as once, and removed.
func TestAVolumesLife(t *testing.T) {
	before := unix.Umask(0o077) // which must not matter
	defer unix.Umask(before)
	n := start(t)
	for range 2 {
		n.expect(t, "make", http.StatusOK, "", dir)(n.send(t, http.MethodPost, good, n.fields()))
	}
	info, err := os.Stat(filepath.Join(n.Base, dir))
	if err != nil || info.Mode() != fs.ModeDir|0o777 {
		t.Errorf("directory %v, error %v; want drwxrwxrwx", info, err)
	}
	fillDirectory(t, filepath.Join(n.Base, dir))
	n.create(t, n.persistentVolume(corev1.VolumeReleased))
	n.expect(t, "make what is to go", http.StatusConflict, taken, dir)(n.send(t, http.MethodPost, good, n.fields()))
	for range 2 { // the second finds nothing, which is as good
		n.expect(t, "remove", http.StatusOK, "")(n.send(t, http.MethodDelete, good, n.fields()))
	}
}

func TestWrongPaths(t *testing.T) {
	n := start(t)
	fillDirectory(t, filepath.Join(n.Base, "shop-other-pvc-1"))
	outside := "is not directly in " + n.Base + ", where this provisioner's volumes are"
	another := "does not end in the name of PersistentVolume"
	for path, want := range map[string]string{
		"":                                  outside,
		"/":                                 outside,
		"/etc":                              outside,
		n.Base:                              outside,
		n.Base + "/../" + dir:               outside,
		n.Base + "/deep/" + dir:             outside,
		n.Base + "/" + dir + "/":            outside,
		n.Base + "/shop-other-pvc-1":        another,
		n.Base + "/-" + pvName:              another,
		n.Base + "/x" + pvName:              another,
		n.Base + "/.deleted-" + pvName:      another,
		n.Base + "/" + pvName:               another,
		n.Base + "/" + dir[:len(dir)-1]:     another,
		"relative/" + dir:                   outside,
		n.Base + "/" + dir + "/../../a-pvc": outside,
	} {
		fields := url.Values{wire.PathField: {path}, wire.VolumeField: {pvName}}
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			status, text := n.send(t, method, good, fields)
			if status != http.StatusBadRequest || !strings.Contains(text, want) {
				t.Errorf("%s %q: %d %s, want %s", method, path, status, text, want)
			}
		}
		n.hasEntries(t, path, "shop-other-pvc-1")
	}
	// A part of the name of another volume, and of its claim.
	for _, volume := range []string{"", "444455556666", "data-" + pvName, pvName[1:], "pvc-data-" + pvName} {
		path := filepath.Join(n.Base, "shop-pvc-data-"+pvName)
		fields := url.Values{wire.PathField: {path}, wire.VolumeField: {volume}}
		if status, text := n.send(t, http.MethodPost, good, fields); status != http.StatusBadRequest {
			t.Errorf("make for volume %q: %d %s", volume, status, text)
		}
	}
}

// TestOnlyAPersistentVolumeRemoves: whatever the provisioner says, data goes only when its PersistentVolume, read live,
// says that it is to go.
func TestOnlyAPersistentVolumeRemoves(t *testing.T) {
	const itself = "PersistentVolume " + pvName
	for name, test := range map[string]struct {
		change func(*corev1.PersistentVolume)
		want   string
	}{
		"bound": {
			func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound },
			itself + " does not ask that this directory be removed: it is Bound, with policy Delete",
		},
		"available": {
			func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeAvailable },
			itself + " does not ask that this directory be removed: it is Available, with policy Delete",
		},
		"new": {
			func(pv *corev1.PersistentVolume) { pv.Status.Phase = "" },
			itself + " does not ask that this directory be removed: it is , with policy Delete",
		},
		"retained": {
			func(pv *corev1.PersistentVolume) { pv.Spec.PersistentVolumeReclaimPolicy = "Retain" },
			itself + " does not ask that this directory be removed: it is Released, with policy Retain",
		},
		"another's": {
			func(pv *corev1.PersistentVolume) { pv.Annotations = nil },
			itself + " is not one of provisioner " + names.EveryNodeProvisioner,
		},
		"another path": {
			func(pv *corev1.PersistentVolume) { pv.Spec.HostPath.Path = "/var/other/" + dir },
			itself + " is at /var/other/" + dir + ", not at ",
		},
		"no hostPath": {
			func(pv *corev1.PersistentVolume) { pv.Spec.HostPath = nil },
			itself + " is not one of provisioner " + names.EveryNodeProvisioner,
		},
		"a name for none": {
			func(pv *corev1.PersistentVolume) { pv.Name = "pvc-1" }, `there is no PersistentVolume "` + pvName + `"`,
		},
	} {
		n := start(t)
		fillDirectory(t, filepath.Join(n.Base, dir))
		pv := n.persistentVolume(corev1.VolumeReleased)
		test.change(pv)
		n.create(t, pv)
		status, text := n.send(t, http.MethodDelete, good, n.fields())
		if status != http.StatusConflict || !strings.HasPrefix(text, test.want) ||
			!strings.HasSuffix(text, "; nothing is removed") {
			t.Errorf("%s: %d %s, want %s", name, status, text, test.want)
		}
		n.hasEntries(t, name, dir)
		n.stop()
	}
	n := start(t)
	fillDirectory(t, filepath.Join(n.Base, dir))
	n.cluster.PrependReactor("get", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API is away")
	})
	status, text := n.send(t, http.MethodDelete, good, n.fields())
	n.expect(t, "without the API", http.StatusInternalServerError, "read the PersistentVolume: the API is away", dir)(
		status, text)
}

// TestRemovalGoesOn where a process was killed: before the rename, after it, half-way, and when a directory came back.
func TestRemovalGoesOn(t *testing.T) {
	last := ".deleted-" + pvName
	for name, found := range map[string][]string{
		"before the rename":            {dir},
		"after the rename":             {last},
		"after the rename, made again": {last, dir},
		"after all":                    nil,
	} {
		n := start(t)
		n.create(t, n.persistentVolume(corev1.VolumeReleased))
		n.stop()
		for _, entry := range found {
			fillDirectory(t, filepath.Join(n.Base, entry))
		}
		fillDirectory(t, filepath.Join(n.Base, "shop-other-pvc-1"))
		n.run(t, n.Base)
		n.expect(t, name, http.StatusOK, "", "shop-other-pvc-1")(n.send(t, http.MethodDelete, good, n.fields()))
		n.stop()
	}
}

// TestRemovalThatIsStopped leaves nothing that looks like a volume, and the next request ends it.
func TestRemovalThatIsStopped(t *testing.T) {
	n := start(t)
	n.create(t, n.persistentVolume(corev1.VolumeReleased))
	fillDirectory(t, filepath.Join(n.Base, dir))
	stopped, cancel := context.WithCancel(t.Context())
	n.cluster.PrependReactor("get", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return false, nil, nil
	})
	request, err := http.NewRequestWithContext(stopped, http.MethodDelete, wire.Directories+"?"+n.fields().Encode(),
		nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.removeAsked(request); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that it was cancelled", err)
	}
	n.hasEntries(t, "stopped", ".deleted-"+pvName)
	n.expect(t, "again", http.StatusOK, "")(n.send(t, http.MethodDelete, good, n.fields()))
}

// TestWithoutItsDisk: where the directory of the volumes is away, that a volume is gone cannot be known.
func TestWithoutItsDisk(t *testing.T) {
	n := start(t)
	if err := os.Remove(n.Base); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		if method == http.MethodDelete {
			n.create(t, n.persistentVolume(corev1.VolumeReleased))
		}
		status, text := n.send(t, method, good, n.fields())
		want := "open the directory of the volumes: open " + n.Base + ": no such file or directory"
		if status != http.StatusInternalServerError || text != want {
			t.Errorf("%s: %d %s, want %s", method, status, text, want)
		}
	}
	if err := n.Ready(t.Context()); err == nil {
		t.Error("it says that it is ready")
	}
}

// TestKeepsWhatItLacks: directories of volumes that were made while the node was away, and of no others.
func TestKeepsWhatItLacks(t *testing.T) {
	n := start(t)
	n.stop()
	other := func(name string, change func(*corev1.PersistentVolume)) {
		pv := n.persistentVolume(corev1.VolumeBound)
		pv.Name = name
		pv.Spec.HostPath.Path = filepath.Join(n.Base, "shop-data-"+name)
		change(pv)
		n.create(t, pv)
	}
	n.create(t, n.persistentVolume(corev1.VolumeBound))
	other("pvc-available", func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeAvailable })
	other("pvc-new", func(pv *corev1.PersistentVolume) { pv.Status.Phase = "" })
	other("pvc-released", func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeReleased })
	other("pvc-ending", func(pv *corev1.PersistentVolume) {
		pv.DeletionTimestamp, pv.Finalizers = new(metav1.Now()), []string{"example.com/finalizer"}
	})
	other("pvc-foreign", func(pv *corev1.PersistentVolume) { pv.Annotations = nil })
	other("pvc-elsewhere", func(pv *corev1.PersistentVolume) { pv.Spec.HostPath.Path = "/var/other/x-pvc-elsewhere" })
	n.run(t, n.Base)
	want := []string{dir, "shop-data-pvc-available", "shop-data-pvc-new"}
	waittest.Until(t, "what is lacking is made", func() bool { return len(listDirectory(t, n.Base)) >= len(want) })
	n.create(t, func() *corev1.PersistentVolume {
		pv := n.persistentVolume(corev1.VolumeBound)
		pv.Name, pv.Spec.HostPath.Path = "pvc-zlast", filepath.Join(n.Base, "shop-data-pvc-zlast")
		return pv
	}())
	waittest.Until(t, "a later volume is made", func() bool { return len(listDirectory(t, n.Base)) > len(want) })
	n.hasEntries(t, "kept", append(want, "shop-data-pvc-zlast")...)
	info, err := os.Stat(filepath.Join(n.Base, dir))
	if err != nil || info.Mode() != fs.ModeDir|0o777 {
		t.Errorf("directory %v, error %v; want drwxrwxrwx", info, err)
	}
}

// TestUnmounted: on a node that has had volumes, nothing is made or removed where none of them is. Needs root.
func TestUnmounted(t *testing.T) {
	n := start(t)
	n.stop()
	mounttest.Tmpfs(t, n.Base, "")
	other := n.persistentVolume(corev1.VolumeBound)
	other.Name, other.Spec.HostPath.Path = "pvc-other", filepath.Join(n.Base, "shop-data-pvc-other")
	n.create(t, n.persistentVolume(corev1.VolumeBound))
	n.create(t, other)
	both := []string{dir, "shop-data-pvc-other"}
	n.run(t, n.Base)
	waittest.Until(t, "a node that has had none makes all",
		func() bool { return len(listDirectory(t, n.Base)) == len(both) })
	waittest.Until(t, "it says that it has some",
		func() bool { return n.registered.Load() && n.said(t) == string(n.public) })
	n.stop()

	elsewhere := t.TempDir()
	if err := unix.Mount(n.Base, elsewhere, "", unix.MS_MOVE, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(elsewhere, unix.MNT_DETACH) })
	n.run(t, n.Base)
	why := n.Base + " has none of the %d volumes that the cluster has there (such as %s), so it is not their " +
		"storage, and nothing is made or removed: mount the right one, or delete their PersistentVolumes; or, where " +
		"its disk is new, make the directory of one by hand"
	want := "Warning DirectoryMissing node here cannot make the directory of the volume, and pods wait for it there: "
	if got := <-n.events.Events; !strings.HasPrefix(got, want+n.Base+" has none of the 2 volumes") {
		t.Errorf("event\n%s\nwant\n%s", got, want)
	}
	n.hasEntries(t, "unmounted")
	n.update(t, n.persistentVolume(corev1.VolumeReleased))
	waittest.Until(t, "it is seen", func() bool {
		pv, err := n.volumes.Get(pvName)
		return err == nil && pv.Status.Phase == corev1.VolumeReleased
	})
	n.expect(t, "remove", http.StatusInternalServerError, fmt.Sprintf(why, 1, both[1]))(
		n.send(t, http.MethodDelete, good, n.fields()))
	fields := url.Values{wire.PathField: {filepath.Join(n.Base, "shop-new-pvc-new")}, wire.VolumeField: {"pvc-new"}}
	n.expect(t, "make", http.StatusInternalServerError, fmt.Sprintf(why, 1, both[1]))(
		n.send(t, http.MethodPost, good, fields))
	becomes := func(phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) {
		other.Status.Phase, other.Spec.PersistentVolumeReclaimPolicy = phase, policy
		n.update(t, other)
		waittest.Until(t, "it is seen", func() bool {
			pv, err := n.volumes.Get(other.Name)
			return err == nil && pv.Status.Phase == phase && pv.Spec.PersistentVolumeReclaimPolicy == policy
		})
	}
	becomes(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)
	n.expect(t, "make beside a retained one", http.StatusInternalServerError, fmt.Sprintf(why, 1, both[1]))(
		n.send(t, http.MethodPost, good, fields))

	if err := unix.Mount(elsewhere, n.Base, "", unix.MS_MOVE, ""); err != nil {
		t.Fatal(err)
	}
	n.expect(t, "mounted again", http.StatusOK, "", both[1])(n.send(t, http.MethodDelete, good, n.fields()))
	if n.said(t) != string(n.public) {
		t.Error("it says that it has none while it has one")
	}
	becomes(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete)
	fields = url.Values{wire.PathField: {other.Spec.HostPath.Path}, wire.VolumeField: {other.Name}}
	n.expect(t, "the last one", http.StatusOK, "")(n.send(t, http.MethodDelete, good, fields))
	if n.said(t) != wire.Unused+string(n.public) {
		t.Error("it does not say that it has none")
	}
}

// said is what this node has registered.
func (n *node) said(t *testing.T) string {
	t.Helper()
	registry, err := n.cluster.CoreV1().ConfigMaps("storage").Get(t.Context(), "managers", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return registry.Data["here"]
}

// TestBaseInAVolume: its pods can exchange what is there, and nothing is made or removed.
func TestBaseInAVolume(t *testing.T) {
	n := start(t)
	tenants := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "tenants"}}
	tenants.Spec.HostPath = &corev1.HostPathVolumeSource{Path: filepath.Dir(n.Base)}
	n.create(t, tenants)
	waittest.Until(t, "it is seen", func() bool { _, err := n.volumes.Get("tenants"); return err == nil })
	n.expect(
		t,
		"make",
		http.StatusInternalServerError,
		n.Base+" is or lies in the directory of PersistentVolume tenants, "+
			"and what is in a volume its pods can exchange for a link to anything on the node; nothing is made or "+
			"removed there: choose a directory that is in no volume",
	)(
		n.send(t, http.MethodPost, good, n.fields()),
	)
}

// TestStaleVolume: what is watched says that a volume is bound, and the API that it has ended meanwhile. Its directory
// was removed, and is not made again.
func TestStaleVolume(t *testing.T) {
	n := start(t)
	old := n.persistentVolume(corev1.VolumeBound)
	for _, now := range []*corev1.PersistentVolume{nil, n.persistentVolume(corev1.VolumeReleased)} {
		if now != nil {
			n.create(t, now)
		}
		if err := n.keepOne(t.Context(), old, dir); err != nil {
			t.Error(err)
		}
		n.hasEntries(t, "a volume that has ended")
	}
	again := n.persistentVolume(corev1.VolumeBound)
	again.UID = "2"
	n.update(t, again)
	if err := n.keepOne(t.Context(), old, dir); err != nil {
		t.Error(err)
	}
}

// TestLooksOfDirectories that are there already: only what a container runtime made for a volume of kubeboost's
// provisioner, and nobody has used, is changed.
func TestLooksOfDirectories(t *testing.T) {
	for name, test := range map[string]struct {
		mode    fs.FileMode
		owner   int
		data    bool
		typed   bool
		becomes fs.FileMode
	}{
		"a container runtime's":               {mode: 0o755, becomes: 0o777},
		"a container runtime's, with data":    {mode: 0o755, data: true, becomes: 0o755},
		"a container runtime's, given away":   {mode: 0o755, owner: 999, becomes: 0o755},
		"private":                             {mode: 0o700, becomes: 0o700},
		"of a volume that pods do not create": {mode: 0o755, typed: true, becomes: 0o755},
	} {
		n := start(t)
		path := filepath.Join(n.Base, dir)
		pv := n.persistentVolume(corev1.VolumeBound)
		if !test.typed {
			pv.Spec.HostPath.Type = nil
		}
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, test.mode),
			os.Chown(path, test.owner, 0)); err != nil {
			t.Fatal(err)
		}
		if test.data {
			if err := os.WriteFile(filepath.Join(path, "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n.create(t, pv)
		if err := n.keepOne(t.Context(), pv, dir); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != test.becomes {
			t.Errorf("%s: %v, error %v; want %v", name, info.Mode(), err, test.becomes)
		}
		n.stop()
	}
}

// TestSomethingElseInItsPlace is neither followed nor replaced, and an event says so.
func TestSomethingElseInItsPlace(t *testing.T) {
	n := start(t)
	outside := t.TempDir()
	fillDirectory(t, outside)
	path := filepath.Join(n.Base, dir)
	if err := os.Symlink(outside, path); err != nil {
		t.Fatal(err)
	}
	status, text := n.send(t, http.MethodPost, good, n.fields())
	want := path + " is there and is not a directory; move it away"
	n.expect(t, "make", http.StatusInternalServerError, want, dir)(status, text)
	n.create(t, n.persistentVolume(corev1.VolumeBound))
	want = "Warning DirectoryMissing node here cannot make the directory of the volume, and pods wait for it there: " +
		path + " is not a directory; see what it is, and move it away"
	if got := <-n.events.Events; got != want {
		t.Errorf("event\n%s\nwant\n%s", got, want)
	}
	n.update(t, n.persistentVolume(corev1.VolumeReleased))
	status, text = n.send(t, http.MethodDelete, good, n.fields())
	n.expect(t, "remove", http.StatusInternalServerError,
		path+" is not a directory; see what it is, and move it away", dir)(status, text)
	if got := listDirectory(t, outside); len(got) != 1 {
		t.Errorf("where the link leads there is %q", got)
	}
}

// TestRegisters when there is a ConfigMap, and makes nothing before.
func TestRegisters(t *testing.T) {
	n := start(t)
	n.stop()
	maps := n.cluster.CoreV1().ConfigMaps("storage")
	if err := maps.Delete(t.Context(), "managers", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.create(t, n.persistentVolume(corev1.VolumeBound))
	asked := make(chan struct{}, 1)
	n.cluster.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		select {
		case asked <- struct{}{}:
		default:
		}
		return false, nil, nil
	})
	go func() {
		<-asked
		n.hasEntries(t, "before it is registered")
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "managers"},
			Data:       map[string]string{"there": "another node's"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
	}()
	n.run(t, n.Base)
	registry, err := maps.Get(t.Context(), "managers", metav1.GetOptions{})
	if err != nil || registry.Data["there"] != "another node's" ||
		!strings.HasSuffix(registry.Data["here"], string(n.public)) {
		t.Errorf("registry %v, error %v", registry.Data, err)
	}
	waittest.Until(t, "the directory is made", func() bool { return len(listDirectory(t, n.Base)) == 1 })
}

// TestLocks: one at a time for a volume, others meanwhile, and who waits can be called back.
func TestLocks(t *testing.T) {
	var l locks
	first, err := l.lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.lock(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := l.lock(brief, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second lock: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := l.lock(ended, "c"); !errors.Is(err, context.Canceled) {
		t.Errorf("a lock for somebody who has left: %v", err)
	}
	inside := 0
	var running sync.WaitGroup
	for range 10 {
		running.Go(func() {
			unlock, err := l.lock(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			inside++ // the race detector sees two
		})
	}
	first()
	running.Wait()
	if inside != 10 || len(l.held) != 0 {
		t.Errorf("%d were inside, %d locks are left", inside, len(l.held))
	}
}
