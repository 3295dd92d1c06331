package copytree_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/mounttest"
)

const (
	links = ".hpp-links-1f0a"
)

// run is a copy in a test.
type run struct {
	reader       copytree.Reader
	source       *os.File
	target       *os.File
	max          int
	fresh, twice bool                  // a new Reader and Sink for each batch; each is applied twice
	each         func(*copytree.Batch) // sees each batch before it is applied
}

func (c *run) sink() *copytree.Sink {
	s := &copytree.Sink{Links: links}
	if c.reader.Clone {
		s.Source = c.source
	}
	return s
}

// total is the sum of batches.
type total struct {
	copytree.Batch
	size     int // of the entries
	finishes int // calls of Finish
}

// copy copies everything, and returns the sum of the batches.
func (c *run) copy(tb testing.TB) total {
	tb.Helper()
	sum, err := c.try(tb)
	must(tb, err)
	return sum
}

func (c *run) try(tb testing.TB) (sum total, err error) {
	tb.Helper()
	r, from := c.reader, []byte(nil)
	for !sum.Last {
		if c.fresh {
			r = c.reader
		}
		b, err := r.Next(tb.Context(), c.source, from, c.max)
		if err != nil {
			return sum, err
		}
		if c.each != nil {
			c.each(&b)
		}
		for range 2 {
			if err = c.sink().Apply(tb.Context(), c.target, b); err != nil {
				return sum, err
			}
			if !c.twice {
				break
			}
		}
		sum.Files, sum.Bytes, sum.Last, sum.size = sum.Files+b.Files, sum.Bytes+b.Bytes, b.Last, sum.size+len(b.Entries)
		sum.Changed, sum.Skipped, sum.Next = sum.Changed+b.Changed, sum.Skipped+b.Skipped, b.Next
		from = b.Next
	}
	sum.finishes = c.finish(tb, sum.Next)
	return sum, nil
}

func (c *run) finish(tb testing.TB, last []byte) (calls int) {
	tb.Helper()
	for done := false; !done; calls++ {
		var err error
		done, err = c.sink().Finish(tb.Context(), c.target, last)
		must(tb, err)
	}
	return calls
}

// TestEverything copies one of everything, in batches of several sizes, however often somebody starts anew.
func TestEverything(t *testing.T) {
	source, ext4, btrfs := disk(t, "ext4")+"/source", disk(t, "ext4"), disk(t, "btrfs")
	everything(t, source)
	want := describe(t, source)
	for name, c := range map[string]run{
		"large":            {max: 512 << 10},
		"4 KiB":            {max: 4 << 10},
		"each step":        {max: 1, fresh: true},
		"each step, twice": {max: 1, twice: true},
		"anew, and twice":  {max: 16 << 10, fresh: true, twice: true},
	} {
		for kind, top := range map[string]string{"ext4": ext4, "btrfs": btrfs} {
			if kind == "btrfs" && c.max < 16<<10 {
				continue // a hundred batches more say nothing more about btrfs
			}
			t.Run(name+" to "+kind, func(t *testing.T) {
				target := top + "/" + strings.ReplaceAll(name, " ", "")
				must(t, os.Mkdir(target, 0o700))
				setxattr(t, target, "system.posix_acl_default", acl(99))
				must(t, os.Chmod(target, 0o777|os.ModeSetgid))
				c.source, c.target = open(t, source), open(t, target)
				sum := c.copy(t)
				differ(t, describe(t, target), want)
				if sum.Changed != 0 || sum.Skipped != 0 || sum.Files != int64(len(want))-1 {
					t.Errorf("%+v of %d", sum, len(want)-1)
				}
				if c.max == 512<<10 {
					c.copy(t) // all of it once more, onto what has its flags
					differ(t, describe(t, target), want)
				}
			})
		}
	}
}

// TestCrashes copies a tree in batches of whatever size, with crashes after any of them: it goes on from any position
// before, with a new Reader and a new Sink.
func TestCrashes(t *testing.T) {
	top := disk(t, "ext4")
	source := top + "/source"
	must(t, errors.Join(os.MkdirAll(source+"/a/b/c", 0o750), os.Mkdir(source+"/z", 0o700)))
	for i := range 6 {
		write(t, source+"/a/"+strconv.Itoa(i), pattern(i*3000))
		must(t, os.Link(source+"/a/"+strconv.Itoa(i), source+"/z/"+strconv.Itoa(i)))
		must(t, os.Link(source+"/a/"+strconv.Itoa(i), source+"/a/b/"+strconv.Itoa(i)))
	}
	writeAt(t, source+"/sparse", 1<<20, map[int64]string{1 << 16: pattern(9000), 1 << 19: "x"})
	must(t, errors.Join(os.Symlink("x", source+"/a/link"), os.Link(source+"/a/link", source+"/z/link")))
	chattr(t, source+"/a/5", immutable)
	chattr(t, source+"/a/b", immutable)
	want, n := describe(t, source), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		c := run{source: open(t, source), target: open(t, mkdir(t, top+"/copy"+strconv.Itoa(n)))}
		r, began, last := &copytree.Reader{}, [][]byte{nil}, false
		crashes := rapid.IntRange(0, 5).Draw(rt, "crashes")
		for !last {
			most := rapid.SampledFrom([]int{1, 700, 9000}).Draw(rt, "max")
			b, err := r.Next(t.Context(), c.source, began[len(began)-1], most)
			must(t, err)
			must(t, c.sink().Apply(t.Context(), c.target, b))
			began, last = append(began, b.Next), b.Last
			if crashes > 0 && (last || rapid.Bool().Draw(rt, "crash")) {
				began, r, last = began[:rapid.IntRange(1, len(began)).Draw(rt, "back to")], &copytree.Reader{}, false
				crashes--
			}
		}
		c.finish(t, began[len(began)-1])
		if differ(t, describe(t, c.target.Name()), want); t.Failed() {
			rt.FailNow()
		}
	})
}

func mkdir(tb testing.TB, path string) string {
	tb.Helper()
	must(tb, os.Mkdir(path, 0o700))
	return path
}

// TestClone shares the data of everything, and then does not carry it.
func TestClone(t *testing.T) {
	for _, kind := range []string{"btrfs", "xfs"} {
		t.Run(kind, func(t *testing.T) { clone(t, disk(t, kind)) })
	}
}

func clone(t *testing.T, top string) {
	t.Helper()
	source, target := top+"/source", top+"/target"
	everything(t, source)
	want := describe(t, source)
	c := run{source: open(t, source), target: open(t, target), max: 8 << 10, twice: true}
	c.reader.Clone = true
	sum := c.copy(t)
	differ(t, describe(t, target), want)
	if sum.Bytes < 1<<20 || sum.size > 1<<20 {
		t.Errorf("%d bytes were cloned by batches of %d", sum.Bytes, sum.size)
	}
	c.target = open(t, disk(t, "ext4")+"/target")
	_, err := c.try(t)
	wants(t, err, copytree.ErrNoClone)
}

// TestNothingAhead: XFS allocates ahead for a file that grows, and keeps that while it is opened again and again.
func TestNothingAhead(t *testing.T) {
	const size = 20 << 20
	source, target := disk(t, "ext4")+"/source", disk(t, "xfs")+"/target"
	write(t, source+"/f", pattern(size))
	c := run{source: open(t, source), target: open(t, target), max: 512 << 10}
	c.copy(t)
	var st unix.Stat_t
	must(t, unix.Stat(target+"/f", &st))
	if allocated := st.Blocks * 512; allocated < size || allocated > size+64<<10 {
		t.Errorf("%d bytes are allocated for %d", allocated, size)
	}
}

// TestCloneChanged notices that a file changed after it was read and before its data was cloned.
func TestCloneChanged(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"grows":   func(dir string) error { return os.WriteFile(dir+"/f", []byte(pattern(33333)), 0o600) },
		"shrinks": func(dir string) error { return os.Truncate(dir+"/f", 100) },
		"is gone": os.RemoveAll,
	} {
		for _, best := range []bool{false, true} {
			top := disk(t, "btrfs")
			must(t, os.Mkdir(top+"/source/d", 0o700))
			write(t, top+"/source/d/f", pattern(22222))
			source, target := open(t, top+"/source"), open(t, top+"/target")
			r := copytree.Reader{Clone: true, BestEffort: best}
			b, err := r.Next(t.Context(), source, nil, 1<<20)
			must(t, errors.Join(err, change(top+"/source/d")))
			s := copytree.Sink{Links: links, Source: source}
			err = s.Apply(t.Context(), target, b)
			if is := errors.Is(err, copytree.ErrChanged); is == best || best && err != nil {
				t.Errorf("it %s, best effort %v: error %v", name, best, err)
			}
			if info, err := os.Stat(top + "/target/d/f"); best && (err != nil || info.Size() != 22222) {
				t.Errorf("it %s: %v, %v", name, info, err)
			}
		}
	}
}

// TestDeep copies a tree that no path leads to the bottom of, and refuses a deeper one.
func TestDeep(t *testing.T) {
	top := disk(t, "btrfs")
	deepen(t, top+"/source", 1024)
	c := run{source: open(t, top+"/source"), target: open(t, top+"/target"), max: 128 << 10, twice: true}
	c.copy(t)
	got, want := describe(t, top+"/target"), describe(t, top+"/source")
	differ(t, got, want)
	if len(want) != 1024+2 {
		t.Errorf("%d files", len(want))
	}
	must(t, errors.Join(os.Mkdir(top+"/over", 0o700), os.Rename(top+"/source", top+"/over/source")))
	c.source = open(t, top+"/over")
	_, err := c.try(t)
	wants(t, err, copytree.ErrDeep)
}

// TestWide reads and removes a bounded part of a large directory at a time, and of a file with many pieces.
func TestWide(t *testing.T) {
	top := disk(t, "ext4")
	must(t, os.Mkdir(top+"/source/wide", 0o700))
	const files = 20_000
	for i := range files {
		must(t, unix.Mknod(top+"/source/wide/"+strconv.Itoa(i), unix.S_IFREG|0o600, 0))
	}
	for i := range 2500 {
		must(t, os.Link(top+"/source/wide/"+strconv.Itoa(i), top+"/source/"+strconv.Itoa(i)))
	}
	f, err := os.Create(top + "/source/pieces")
	must(t, err)
	for i := range int64(2500) {
		_, err = f.WriteAt([]byte("x"), i<<13)
		must(t, err)
	}
	must(t, f.Close())
	c := run{source: open(t, top+"/source"), target: open(t, top+"/target"), max: 1 << 30}
	c.each = func(b *copytree.Batch) {
		if b.Files > 1024 || b.Bytes > 1024*4096 {
			t.Errorf("a batch has %d files and %d bytes of pieces", b.Files, b.Bytes)
		}
	}
	sum := c.copy(t)
	for _, name := range []string{".", "wide"} {
		got, err := os.ReadDir(top + "/target/" + name)
		must(t, err)
		want, err := os.ReadDir(top + "/source/" + name)
		must(t, err)
		if !slices.EqualFunc(got, want, func(a, b os.DirEntry) bool { return a.Name() == b.Name() }) {
			t.Errorf("%s has %d names, want %d", name, len(got), len(want))
		}
	}
	got, err := os.ReadFile(top + "/target/pieces")
	must(t, err)
	want, err := os.ReadFile(top + "/source/pieces")
	if err != nil || !bytes.Equal(got, want) || sum.Bytes > 2500*4096 {
		t.Errorf("%d bytes of pieces, %d were copied, %v", len(got), sum.Bytes, err)
	}
	if sum.finishes != 3 {
		t.Errorf("2500 links were removed in %d calls", sum.finishes)
	}
}

// TestContext ends a slice early, and never keeps it from coming nearer to its end.
func TestContext(t *testing.T) {
	top := disk(t, "ext4")
	write(t, top+"/source/a", "a")
	source, target := open(t, top+"/source"), open(t, top+"/target")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	r, s := copytree.Reader{}, copytree.Sink{Links: links}
	_, err := r.Next(over, source, nil, 1<<20)
	wants(t, err, context.Canceled)
	late := &lateContext{Context: t.Context()}
	b, err := r.Next(late, source, nil, 1<<20)
	if err != nil || b.Last || b.Files != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	wants(t, s.Apply(over, target, b), context.Canceled)
	must(t, s.Apply(t.Context(), target, b))
	_, err = s.Finish(over, target, b.Next)
	wants(t, err, context.Canceled)
	_, err = s.Finish(t.Context(), target, b.Next)
	wants(t, err, copytree.ErrPosition)
}

// lateContext ends once somebody has seen that it has not.
type lateContext struct {
	context.Context
	seen bool
}

func (l *lateContext) Err() error {
	if !l.seen {
		l.seen = true
		return nil
	}
	return context.DeadlineExceeded
}

// TestLastPosition can be asked for once more.
func TestLastPosition(t *testing.T) {
	top := disk(t, "ext4")
	write(t, top+"/source/a", "a")
	c := run{source: open(t, top+"/source"), target: open(t, top+"/target"), max: 1 << 20}
	last := c.copy(t).Next
	r := copytree.Reader{}
	b, err := r.Next(t.Context(), c.source, last, 1<<20)
	if err != nil || !b.Last || !bytes.Equal(b.Next, last) || b.Files != 0 {
		t.Errorf("%+v, %v", b, err)
	}
	must(t, c.sink().Apply(t.Context(), c.target, b))
	c.finish(t, b.Next)
	differ(t, describe(t, top+"/target"), describe(t, top+"/source"))
}

// TestFull says that the disk is.
func TestFull(t *testing.T) {
	top := disk(t, "ext4")
	write(t, top+"/source/a", pattern(4<<20))
	must(t, os.Mkdir(top+"/small", 0o700))
	mounttest.Tmpfs(t, top+"/small", "size=1m")
	c := run{source: open(t, top+"/source"), target: open(t, top+"/small"), max: 512 << 10}
	_, err := c.try(t)
	wants(t, err, unix.ENOSPC)
	if _, ok := errors.AsType[*fs.PathError](err); !ok {
		t.Errorf("%v is a %T", err, err)
	}
}

// TestACLOfXFS copies an ACL by the name that other filesystems have for it, too.
func TestACLOfXFS(t *testing.T) {
	source, target := disk(t, "xfs")+"/source", disk(t, "ext4")+"/target"
	setxattr(t, source, "system.posix_acl_default", acl(99))
	write(t, source+"/f", "data")
	c := run{source: open(t, source), target: open(t, target), max: 512 << 10}
	c.copy(t)
	for path, name := range map[string]string{"": "system.posix_acl_default", "/f": "system.posix_acl_access"} {
		list := make([]byte, 1<<10)
		n, err := unix.Listxattr(target+path, list)
		must(t, err)
		if got := string(list[:n]); got != name+"\x00" {
			t.Errorf("%s has %q, want %s", path, got, name)
		}
	}
}

// TestManyNames makes a copy where a file can have no more names: ext4 counts 65,000.
func TestManyNames(t *testing.T) {
	top := disk(t, "ext4")
	write(t, top+"/source/1", "data")
	must(t, errors.Join(os.Link(top+"/source/1", top+"/source/2"), os.Link(top+"/source/1", top+"/source/3")))
	must(t, os.Mkdir(top+"/more", 0o700))
	c := run{source: open(t, top+"/source"), target: open(t, top+"/target"), max: 1, fresh: true}
	made := false
	c.each = func(*copytree.Batch) {
		names, err := os.ReadDir(top + "/target/" + links)
		if made || err != nil || len(names) == 0 {
			return
		}
		made = true
		path := top + "/target/" + links + "/" + names[0].Name()
		for n := 0; !errors.Is(err, unix.EMLINK); n++ {
			if err = unix.Link(path, top+"/more/"+strconv.Itoa(n)); n > 70_000 {
				t.Fatal("a file has 70,000 names")
			}
		}
	}
	c.copy(t)
	var nlink []uint64
	for _, name := range []string{"1", "2", "3"} {
		data, err := os.ReadFile(top + "/target/" + name)
		var st unix.Stat_t
		must(t, errors.Join(err, unix.Stat(top+"/target/"+name, &st)))
		if nlink = append(nlink, uint64(st.Nlink)); string(data) != "data" {
			t.Errorf("%s is %q", name, data)
		}
	}
	if slices.Sort(nlink); !made || nlink[0] != 2 || nlink[1] != 2 || nlink[2] < 60_000 {
		t.Errorf("names: %v", nlink)
	}
}
