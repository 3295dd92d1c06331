package copytree_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree/entry"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

// batch is what a Reader would not make.
func batch(entries ...*entry.Entry) copytree.Batch {
	out, data := entry.Begin(), 0
	for _, e := range entries {
		out = e.AppendTo(out)
		if e.Kind == entry.WriteData {
			data += len(e.Data)
		}
	}
	return copytree.Batch{Entries: out, Bytes: int64(data)}
}

// TestBatchThatSaysTooLittle: what is counted by who stores a tree is what is written.
func TestBatchThatSaysTooLittle(t *testing.T) {
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	b := batch(entry.New(entry.BeginFile, "f"),
		&entry.Entry{Head: entry.Head{Kind: entry.WriteData}, Data: []byte("more")})
	sink := &copytree.Sink{Links: "links"}
	if err := sink.Apply(t.Context(), root, b); err != nil {
		t.Error(err)
	}
	b.Bytes--
	if err := sink.Apply(t.Context(), root, b); !errors.Is(err, copytree.ErrBatch) {
		t.Errorf("a batch with more data than it says: %v", err)
	}
}

// other is a link, a FIFO, a socket or a device of a mode, or a link to a place.
func other(name string, mode uint32, to string) *entry.Entry {
	e := entry.New(entry.MakeOther, name)
	e.Mode, e.Data = mode, []byte(to)
	return e
}

// keyed is an entry about a file that has several names.
func keyed(e *entry.Entry, ino uint64) *entry.Entry {
	e.Linked, e.Ino = true, ino
	return e
}

// TestHostileBatches refuses what leads out of the target, and what makes no sense, and touches nothing outside.
func TestHostileBatches(t *testing.T) {
	data := &entry.Entry{Head: entry.Head{Kind: entry.WriteData}, Data: []byte("hacked")}
	before, vast := &entry.Entry{}, &entry.Entry{}
	*before, *vast = *data, *data
	before.Offset, vast.Offset = -1, 1<<62
	badXattr := entry.New(entry.LeaveDir, "")
	badXattr.Xattrs = map[string][]byte{"security.selinux": []byte("x")}
	negative := entry.New(entry.EndFile, "")
	negative.Size = -1
	enter := func(name string) *entry.Entry { return entry.New(entry.EnterDir, name) }
	file := func(name string) *entry.Entry { return entry.New(entry.BeginFile, name) }
	on := func(name string) *entry.Entry { return entry.New(entry.GoOnFile, name) }
	drop := func(name string) *entry.Entry { return entry.New(entry.DropFile, name) }
	toFile := other("l", unix.S_IFLNK, "../outside/f")
	linked, leave := keyed(file("f"), 5), entry.New(entry.LeaveDir, "")
	type es = []*entry.Entry
	tests := map[string]struct {
		entries es
		want    error
	}{
		"up":                       {es{enter("..")}, fs.ErrInvalid},
		"here":                     {es{enter(".")}, fs.ErrInvalid},
		"no name":                  {es{file("")}, fs.ErrInvalid},
		"absolute":                 {es{file("/etc/x")}, fs.ErrInvalid},
		"a path":                   {es{enter("a"), file("../../outside/f")}, fs.ErrInvalid},
		"NUL":                      {es{file("a\x00b")}, fs.ErrInvalid},
		"a long name":              {es{file(strings.Repeat("x", 256))}, fs.ErrInvalid},
		"the links":                {es{enter(links)}, fs.ErrInvalid},
		"a file like the links":    {es{file(links)}, fs.ErrInvalid},
		"drop the links":           {es{drop(links)}, fs.ErrInvalid},
		"drop what is above":       {es{drop("..")}, fs.ErrInvalid},
		"through a link":           {es{other("l", unix.S_IFLNK, "../outside"), enter("l")}, unix.ELOOP},
		"on through a link":        {es{toFile, on("l"), data}, unix.ELOOP},
		"on with a device":         {es{other("d", unix.S_IFCHR, ""), on("d"), data}, unix.EINVAL},
		"on with a directory":      {es{enter("d"), leave, on("d")}, copytree.ErrBatch},
		"on with nothing":          {es{on("n")}, copytree.ErrBatch},
		"a link as a file's like":  {es{keyed(other("l", unix.S_IFLNK, "../outside/f"), 5), linked, data}, unix.ELOOP},
		"a FIFO as a file's like":  {es{keyed(other("p", unix.S_IFIFO, ""), 5), linked, data}, unix.EINVAL},
		"a name of nothing":        {es{keyed(entry.New(entry.LinkFile, "f"), 6)}, copytree.ErrBatch},
		"a name without a key":     {es{entry.New(entry.LinkFile, "f")}, copytree.ErrBatch},
		"a file as another":        {es{other("f", unix.S_IFREG, "")}, copytree.ErrBatch},
		"a directory as another":   {es{other("f", unix.S_IFDIR, "")}, copytree.ErrBatch},
		"a file for a directory":   {es{enter("d"), leave, file("d")}, unix.EISDIR},
		"a directory for a file":   {es{file("f"), enter("f")}, unix.ENOTDIR},
		"data of no file":          {es{data}, copytree.ErrBatch},
		"data of a left file":      {es{enter("d"), file("f"), leave, data}, copytree.ErrBatch},
		"data before the file":     {es{file("f"), before}, copytree.ErrBatch},
		"data far behind":          {es{file("f"), vast}, unix.EFBIG},
		"a negative size":          {es{file("f"), negative}, copytree.ErrBatch},
		"a clone without a source": {es{file("f"), entry.New(entry.CloneData, "")}, copytree.ErrBatch},
		"leave too much":           {es{leave, leave}, copytree.ErrBatch},
		"an attribute of SELinux":  {es{badXattr}, copytree.ErrBatch},
		"nothing":                  {es{entry.New(0, "f")}, copytree.ErrBatch},
		"what is to come":          {es{entry.New(99, "f")}, copytree.ErrBatch},
	}
	top := disk(t, "ext4")
	must(t, os.Mkdir(top+"/outside", 0o700))
	write(t, top+"/outside/f", "untouched")
	want := describe(t, top+"/outside")
	for name, test := range tests {
		target := top + "/" + strings.ReplaceAll(name, " ", "-")
		must(t, os.Mkdir(target, 0o700))
		s := copytree.Sink{Links: links}
		if err := s.Apply(t.Context(), open(t, target), batch(test.entries...)); !errors.Is(err, test.want) {
			t.Errorf("%s: error %v, want %v", name, err, test.want)
		}
		if got := describe(t, top+"/outside"); !maps.Equal(got, want) {
			t.Fatalf("%s: %v is outside", name, got)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "a\x00"} {
		s := copytree.Sink{Links: name}
		wants(t, s.Apply(t.Context(), open(t, top+"/target"), batch()), fs.ErrInvalid)
	}
	deep := make([]*entry.Entry, 1025)
	for i := range deep {
		deep[i] = enter("d")
	}
	s := copytree.Sink{Links: links}
	wants(t, s.Apply(t.Context(), open(t, top+"/target"), batch(deep...)), copytree.ErrDeep)
}

// TestRootIsNotFixed: a copy can be renamed and removed, whatever flags its source has, or batches say. What is below
// keeps them.
func TestRootIsNotFixed(t *testing.T) {
	for _, kind := range []string{"ext4", "btrfs"} {
		top := disk(t, kind)
		for i, fixed := range []int{immutable, appendOnly, immutable | appendOnly} {
			source, target := fmt.Sprint(top, "/source", i), fmt.Sprint(top, "/target", i)
			must(t, os.MkdirAll(source+"/d", 0o700))
			must(t, os.Mkdir(target, 0o700))
			chattr(t, source+"/d", fixed)
			chattr(t, source, fixed|nodump)
			c := run{source: open(t, source), target: open(t, target), max: 1, twice: true}
			c.copy(t)
			leave := entry.New(entry.LeaveDir, "")
			leave.Flags = uint32(fixed | nodump)
			hostile := batch(leave)
			must(t, c.sink().Apply(t.Context(), c.target, hostile))
			if got := flags(t, c.target, immutable|appendOnly); got != " flags 0x0" {
				t.Errorf("%s: a batch gives the root%s", kind, got)
			}
			c.finish(t, hostile.Entries)
			if got := flags(t, c.target, whitelist); got != " flags 0x40" {
				t.Errorf("%s: the root has%s", kind, got)
			}
			if got, want := flags(t, open(t, target+"/d"), whitelist), fmt.Sprintf(" flags %#x", fixed); got != want {
				t.Errorf("%s: below it is%s, want%s", kind, got, want)
			}
			must(t, os.Rename(target, target+".whole"))
		}
	}
}

// TestHostilePositions resumes nowhere.
func TestHostilePositions(t *testing.T) {
	top := disk(t, "ext4")
	must(t, os.MkdirAll(top+"/source/d/e", 0o700))
	write(t, top+"/source/d/f", pattern(9000))
	source, r := open(t, top+"/source"), copytree.Reader{}
	var good [][]byte
	for from := []byte(nil); ; {
		b, err := r.Next(t.Context(), source, from, 1)
		must(t, err)
		if from = b.Next; b.Last {
			break
		}
		good = append(good, from)
	}
	dir := func(name string) *entry.Entry { return entry.New(entry.EnterDir, name) }
	bad := map[string][]byte{
		"no version": {}, "another version": {99}, "only a version": {1}, "garbage": []byte("\x01garbage"),
		"no directory":       batch(entry.New(entry.GoOnFile, "f")).Entries,
		"out":                batch(dir("."), dir("..")).Entries,
		"a path":             batch(dir("."), dir("d/e")).Entries,
		"two files":          batch(dir("."), entry.New(entry.GoOnFile, "f"), entry.New(entry.GoOnFile, "f")).Entries,
		"an end, and more":   batch(entry.New(entry.LeaveDir, ""), dir(".")).Entries,
		"something else":     batch(dir("."), entry.New(entry.WriteData, "f")).Entries,
		"another filesystem": good[0],
	}
	for name, from := range bad {
		at := source
		if name == "another filesystem" {
			at = open(t, top)
		}
		if name == "no version" {
			continue // the beginning
		}
		if _, err := r.Next(t.Context(), at, from, 1); !errors.Is(err, copytree.ErrPosition) {
			t.Errorf("%s: error %v", name, err)
		}
		s := copytree.Sink{Links: links}
		if _, err := s.Finish(t.Context(), open(t, top+"/target"), from); !errors.Is(err, copytree.ErrPosition) {
			t.Errorf("%s: error of Finish %v", name, err)
		}
	}
	for _, from := range good {
		whole, at := map[int]bool{}, entry.Begin()
		for e, err := range entry.All(from) {
			must(t, err)
			at = e.AppendTo(at)
			whole[len(at)] = true
		}
		for n := 1; n < len(from); n++ {
			if _, err := r.Next(t.Context(), source, from[:n], 1); !whole[n] && !errors.Is(err, copytree.ErrPosition) {
				t.Errorf("%d of %d bytes: error %v", n, len(from), err)
			}
		}
	}
}

// TestSwappedForALink copies nothing from where links lead that were made while it read, on either side.
func TestSwappedForALink(t *testing.T) {
	top := disk(t, "ext4")
	must(t, os.MkdirAll(top+"/source/d/e", 0o700))
	must(t, os.Mkdir(top+"/outside", 0o700))
	must(t, os.Mkdir(top+"/outside/e", 0o700))
	write(t, top+"/outside/e/f", "secret")
	write(t, top+"/source/d/e/f", pattern(9000))
	source, target := open(t, top+"/source"), open(t, top+"/target")
	r, s := copytree.Reader{}, copytree.Sink{Links: links}
	var from []byte
	for range 4 { // d, e, f, and a part of f
		b, err := r.Next(t.Context(), source, from, 1)
		must(t, errors.Join(err, s.Apply(t.Context(), target, b)))
		from = b.Next
	}
	must(t, errors.Join(os.Rename(top+"/source/d", top+"/was"), os.Symlink("../outside", top+"/source/d")))
	_, err := r.Next(t.Context(), source, from, 1)
	wants(t, err, copytree.ErrChanged)
	wants(t, err, copytree.ErrPosition)

	must(t, errors.Join(os.Remove(top+"/source/d"), os.Rename(top+"/was", top+"/source/d")))
	r.BestEffort = true
	b, err := r.Next(t.Context(), source, from, 1<<20)
	must(t, err)
	must(t, errors.Join(os.Rename(top+"/target/d", top+"/was"), os.Symlink("../outside", top+"/target/d")))
	wants(t, s.Apply(t.Context(), target, b), unix.ELOOP)
	got, err := os.ReadFile(top + "/outside/e/f")
	if err != nil || string(got) != "secret" {
		t.Errorf("%q, %v outside", got, err)
	}
}

// TestChanged refuses, or counts and goes on with, each way to change a tree that is being read.
func TestChanged(t *testing.T) {
	for name, test := range map[string]struct {
		change func(top string) error
		want   map[string]string // what is then in the copy of best effort, beside the rest
		counts int64
	}{
		"a file grows": {
			func(d string) error { return os.WriteFile(d+"/f", []byte(pattern(30000)), 0o600) },
			map[string]string{"f": pattern(20000)},
			1,
		},
		"a file shrinks": {
			func(d string) error { return os.Truncate(d+"/f", 100) },
			map[string]string{"f": pattern(100)},
			1,
		},
		"a file is gone": {func(d string) error { return os.Remove(d + "/f") }, map[string]string{}, 2},
		"a file is replaced": {func(d string) error {
			return errors.Join(os.WriteFile(d+"/g", []byte("new"), 0o600), os.Rename(d+"/g", d+"/f"))
		}, map[string]string{"f": "new"}, 2},
		"a file becomes a FIFO": {
			func(d string) error { return errors.Join(os.Remove(d+"/f"), unix.Mkfifo(d+"/f", 0o600)) },
			map[string]string{},
			2,
		},
		"its mode changes": {
			func(d string) error { return os.Chmod(d+"/f", 0o644) },
			map[string]string{"f": pattern(20000)},
			1,
		},
		"the directory is gone": {os.RemoveAll, map[string]string{}, 2},
		"the directory is another": {
			func(d string) error { return errors.Join(os.Rename(d, d+"2"), os.Mkdir(d, 0o700)) },
			nil, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			for _, name := range []string{"/source/d", "/strict", "/best"} {
				must(t, os.MkdirAll(top+name, 0o700))
			}
			write(t, top+"/source/d/f", pattern(20000))
			before := func(best bool) (*run, *int) {
				n := 0
				return &run{reader: copytree.Reader{BestEffort: best}, source: open(t, top+"/source"), max: 5000}, &n
			}
			strict, n := before(false)
			strict.target = open(t, top+"/strict")
			changed := func(b *copytree.Batch) {
				if *n += int(b.Bytes); b.Bytes > 0 && *n < 12000 {
					return
				}
				if b.Bytes > 0 {
					must(t, test.change(top+"/source/d"))
					*n = -1 << 30
				}
			}
			strict.each = changed
			_, err := strict.try(t)
			wants(t, err, copytree.ErrChanged)
			if !strings.Contains(err.Error(), top+"/source") {
				t.Errorf("%v does not say what", err)
			}

			must(t, errors.Join(os.RemoveAll(top+"/source"), os.MkdirAll(top+"/source/d", 0o700)))
			write(t, top+"/source/d/f", pattern(20000))
			best, m := before(true)
			n = m
			best.target, best.each, best.fresh = open(t, top+"/best"), changed, true
			sum := best.copy(t)
			if sum.Changed != test.counts {
				t.Errorf("%d changes were counted, want %d", sum.Changed, test.counts)
			}
			got := map[string]string{}
			names, err := os.ReadDir(top + "/best/d")
			must(t, err)
			for _, e := range names {
				data, err := os.ReadFile(top + "/best/d/" + e.Name())
				must(t, err)
				got[e.Name()] = string(data)
			}
			if test.want == nil {
				test.want = map[string]string{}
			}
			if !maps.Equal(got, test.want) {
				t.Errorf("%.80q, want %.80q", got, test.want)
			}
		})
	}
}

// TestNewFilesWithOldNumbers: what has the inode number of a file that was copied, and is gone, has its own data.
func TestNewFilesWithOldNumbers(t *testing.T) {
	const dirs = 9
	top := disk(t, "ext4")
	must(t, os.MkdirAll(top+"/best", 0o700))
	dir := func(under string, i int) string { return fmt.Sprint(top, under, "/d", i) }
	pairs := func(data string, from, step int) { // a file with two names in each directory
		for i := range dirs {
			at := dir("/source", i)
			must(t, errors.Join(os.RemoveAll(at+"/x"), os.RemoveAll(at+"/y"), os.MkdirAll(at, 0o700)))
		}
		for i := from; i >= 0 && i < dirs; i += step {
			at := dir("/source", i)
			write(t, at+"/x", data+pattern(2000))
			must(t, os.Link(at+"/x", at+"/y"))
		}
	}
	pairs("old ", 0, 1)
	c := run{reader: copytree.Reader{BestEffort: true}, source: open(t, top+"/source"), target: open(t, top+"/best")}
	var late []string // not begun when the files change
	for b := (copytree.Batch{}); !b.Last; {
		var err error
		b, err = c.reader.Next(t.Context(), c.source, b.Next, 5000)
		must(t, errors.Join(err, c.sink().Apply(t.Context(), c.target, b)))
		if late != nil || b.Bytes == 0 {
			continue
		}
		for i := range dirs {
			if _, err := os.Stat(dir("/best", i)); err != nil {
				late = append(late, dir("/best", i))
			}
		}
		pairs("new ", dirs-1, -1) // in another order, so that they get numbers of other ones
	}
	for _, at := range late {
		for _, name := range []string{"/x", "/y"} {
			if data, err := os.ReadFile(at + name); err != nil || string(data) != "new "+pattern(2000) {
				t.Errorf("%s%s: %.8q, %v", at, name, data, err)
			}
		}
	}
	if len(late) < 3 {
		t.Errorf("only %v were read after the change", late)
	}
}

// TestLeased neither waits for a lease of a file that a pod has, nor leaves the file out.
func TestLeased(t *testing.T) {
	top := disk(t, "xfs")
	write(t, top+"/source/f", "data")
	for name, clone := range map[string]bool{"read": false, "cloned": true} {
		t.Run(name, func(t *testing.T) {
			c := run{reader: copytree.Reader{BestEffort: true, Clone: clone}, source: open(t, top+"/source"), max: 1}
			c.target = open(t, mkdir(t, top+"/"+name))
			pod, err := os.OpenFile(top+"/source/f", os.O_RDWR, 0)
			must(t, err)
			lease := func() {
				_, err := unix.FcntlInt(pod.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
				must(t, err)
			}
			lease()
			_, err = c.try(t)
			wants(t, err, copytree.ErrLeased)
			if clone {
				_, err = unix.FcntlInt(pod.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
				must(t, err)
				c.each = func(b *copytree.Batch) {
					if b.Bytes > 0 {
						lease()
					}
				}
				_, err = c.try(t)
				wants(t, err, copytree.ErrLeased)
				c.each = nil
			}
			must(t, pod.Close())
			c.copy(t)
			differ(t, describe(t, c.target.Name()), describe(t, top+"/source"))
		})
	}
}

// TestMounts makes empty directories of what is mounted in the source, and of subvolumes.
func TestMounts(t *testing.T) {
	top := disk(t, "btrfs")
	must(t, errors.Join(os.Mkdir(top+"/source/tmpfs", 0o700), os.Chown(top+"/source", 5, 5)))
	write(t, top+"/source/file", "")
	write(t, top+"/bound", "secret")
	mounttest.Run(t, "btrfs", "subvolume", "create", top+"/source/subvolume")
	must(t, os.Chmod(top+"/source/subvolume", 0o741))
	write(t, top+"/source/subvolume/f", "x")
	mounttest.Tmpfs(t, top+"/source/tmpfs", "size=1m")
	write(t, top+"/source/tmpfs/f", "x")
	must(t, unix.Mount(top+"/bound", top+"/source/file", "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(top+"/source/file", 0) })
	c := run{source: open(t, top+"/source"), target: open(t, top+"/target"), max: 1 << 20}
	sum := c.copy(t)
	got := describe(t, top+"/target")
	if sum.Skipped != 3 || len(got) != 3 || !strings.HasPrefix(got["/tmpfs"], "mode 40700 owner 5:5 ") ||
		!strings.HasPrefix(got["/subvolume"], "mode 40741 owner 0:0 ") {
		t.Errorf("%d were skipped: %v", sum.Skipped, got)
	}
}

// FuzzApply applies anything. Nothing outside the target changes, and nothing panics.
func FuzzApply(f *testing.F) {
	file := keyed(entry.New(entry.BeginFile, "f"), 7)
	data := &entry.Entry{Head: entry.Head{Kind: entry.WriteData}, Data: []byte("data")}
	leave := entry.New(entry.LeaveDir, "")
	leave.Xattrs = map[string][]byte{"user.a": []byte("b")}
	end := entry.New(entry.EndFile, "")
	end.Flags, end.Mode = 0x40, 0o600
	for _, b := range []copytree.Batch{
		{},
		batch(),
		{Entries: []byte("\x01garbage")},
		batch(entry.New(entry.EnterDir, "d"), leave, leave),
		batch(file, data, end, keyed(entry.New(entry.LinkFile, "g"), 7), end, leave),
		batch(other("l", unix.S_IFLNK|0o777, "../outside"), entry.New(entry.EnterDir, "l"), file, data),
		batch(entry.New(entry.EnterDir, "d"), entry.New(entry.EnterDir, ".."), entry.New(entry.DropFile, "outside")),
	} {
		f.Add(b.Entries)
	}
	top := f.TempDir()
	must(f, os.Mkdir(top+"/outside", 0o700))
	write(f, top+"/outside/f", "untouched")
	want, n := describe(f, top+"/outside"), 0
	f.Fuzz(func(t *testing.T, entries []byte) {
		n++
		target := top + "/" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(n)
		must(t, os.Mkdir(target, 0o700))
		root := open(t, target)
		s := copytree.Sink{Links: links}
		_ = s.Apply(t.Context(), root, copytree.Batch{Entries: entries})
		_, _ = s.Finish(t.Context(), root, entries)
		r := copytree.Reader{}
		_, _ = r.Next(t.Context(), root, entries, 100)
		got := describe(t, top+"/outside")
		if len(got) != 2 || got["/f"] != want["/f"] {
			t.Fatalf("%v is outside", got)
		}
		if os.RemoveAll(target) != nil {
			_ = exec.Command("chattr", "-R", "-f", "-i", "-a", target).Run() // it says where there are no flags, too
			must(t, os.RemoveAll(target))
		}
	})
}
