package volume_test

import (
	"bytes"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// writer fills a file block by block, without closing it, and goes on after a limit that was met has grown.
type writer struct {
	written atomic.Int64 // bytes
	met     chan struct{}
	grown   chan struct{} // closed at the end
	done    chan error
}

const writerBlock = 64 << 10

// content differs from block to block.
func content(block int64) []byte {
	return bytes.Repeat([]byte{byte(block), byte(block >> 8)}, writerBlock/2)
}

func startWriter(name string) *writer {
	w := &writer{met: make(chan struct{}), grown: make(chan struct{}), done: make(chan error, 1)}
	go func() { w.done <- withoutResource(func() error { return w.run(name) }) }()
	return w
}

func (w *writer) run(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for {
		at := w.written.Load()
		_, err := f.WriteAt(content(at/writerBlock), at)
		switch {
		case err == nil:
			w.written.Add(writerBlock)
			continue
		case !full(err):
			return errors.Join(err, f.Close())
		}
		w.met <- struct{}{}
		if _, more := <-w.grown; !more {
			return errors.Join(f.Sync(), f.Close())
		}
	}
}

// until waits for so many bytes.
func (w *writer) until(t *testing.T, bytes int64) {
	t.Helper()
	for w.written.Load() < bytes {
		select {
		case err := <-w.done:
			t.Fatalf("the writer ended after %d bytes: %v", w.written.Load(), err)
		case <-w.met:
			if w.written.Load() < bytes {
				t.Fatalf("a limit was met after %d bytes", w.written.Load())
			}
			go func() { w.grown <- struct{}{} }() // it was faster than this look, and tries again
		case <-time.After(time.Millisecond):
		}
	}
}

// fills waits until a limit is met that lies above `least` bytes, and wants it to be at most `most`.
func (w *writer) fills(t *testing.T, least, most int64) {
	t.Helper()
	for {
		select {
		case err := <-w.done:
			t.Fatalf("the writer ended after %d bytes: %v", w.written.Load(), err)
		case <-w.met:
		}
		if w.written.Load() >= least {
			break
		}
		w.grown <- struct{}{} // it met the limit before that grew
	}
	if written := w.written.Load(); written > most {
		t.Errorf("%d bytes were written to a volume of %d", written, most)
	}
}

// TestEnforcedGrowsUnderAWriter: a process that writes meanwhile gets each new size, never more, and loses nothing.
func TestEnforcedGrowsUnderAWriter(t *testing.T) {
	onEnforcedDisks(t, func(t *testing.T, _ enforcedDisk, root string) {
		n := startAt(t, root, required)
		s := spec("pvc-1")
		s.Bytes = 16 * mebibyte
		v, err := n.Create(t.Context(), s)
		must(t, err)
		grow := func(mebibytes int64) {
			t.Helper()
			v, err := n.Expand(t.Context(), v.ID, mebibytes*mebibyte, 0)
			if err != nil || v.Bytes != mebibytes*mebibyte {
				t.Errorf("expand to %d MiB: %d bytes, %v", mebibytes, v.Bytes, err)
			}
		}
		w := startWriter(n.path(v.ID, "log"))
		w.until(t, 4*mebibyte)
		grow(32) // while it writes
		w.fills(t, 28*mebibyte, 32*mebibyte)
		grow(48) // while it waits for room
		w.grown <- struct{}{}
		w.fills(t, 44*mebibyte, 48*mebibyte)
		close(w.grown)
		must(t, <-w.done)
		data, err := os.ReadFile(n.path(v.ID, "log"))
		written := w.written.Load()
		if err != nil || int64(len(data)) < written {
			t.Fatalf("the file has %d bytes, %v; %d were written", len(data), err, written)
		}
		for at := int64(0); at < written; at += writerBlock {
			if !bytes.Equal(data[at:at+writerBlock], content(at/writerBlock)) {
				t.Fatalf("what was written at %d is lost", at)
			}
		}
		n.consistent(t, "grown")
		must(t, n.Delete(t.Context(), v.ID))
		n.purgeAll(t)
		n.unlimited(t)
	})
}
