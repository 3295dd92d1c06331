// Package entry is what batches of a copy, and positions in one, are made of: entries with what a file has beside its
// data. Reading one trusts nobody.
package entry

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"iter"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrEntry is a batch, a position or a part of one that is not understood.
var ErrEntry = errors.New("the batch is not understood")

// version is the first byte of Batch.Entries and of Batch.Next. A change of what follows is a new version: positions
// are stored, and batches go to nodes that have another release.
const version = 1

// Kind is what an entry says. The numbers are part of the format.
type Kind uint8

// What an entry says, and what it has for it.
const (
	EnterDir  Kind = 1 // goes into a directory, and makes it where there is none
	LeaveDir  Kind = 2 // gives the current directory its attributes, and goes up
	BeginFile Kind = 3 // makes an empty file, the current one
	GoOnFile  Kind = 4 // makes a file that was begun the current one
	LinkFile  Kind = 5 // makes another name of a file that was copied the current one
	WriteData Kind = 6 // Offset, data
	CloneData Kind = 7 // Offset, Size, Changed unless that is not to be compared
	EndFile   Kind = 8 // Size and attributes
	MakeOther Kind = 9 // a link to data, a FIFO, a socket or a device, and its attributes
	DropFile  Kind = 10
)

// Entry is one step in making a tree, or a part of a Reader's position. What its kind has no use for is zero.
type Entry struct {
	Head
	Name   string // in the current directory
	Data   []byte
	Xattrs map[string][]byte // extended attributes
}

// Head is the part of an entry that has a fixed size; numbers are little-endian.
type Head struct {
	Kind    Kind
	Linked  bool   // it has several names
	Ino     uint64 // in the source
	Offset  int64  // in bytes; in a position where to read on, for a directory by os.File.Seek
	Size    int64  // in bytes
	Changed int64  // in nanoseconds; of a file its ctime, of a directory its mtime, which changes with the names in it
	Attributes
}

// Attributes are what a file has beside its data, names and extended attributes.
type Attributes struct {
	Mode, UID, GID uint32 // Mode says what it is, too
	Flags          uint32 // of those in copiedFlags
	Rdev           uint64
	Atime, Mtime   [2]int64 // seconds and nanoseconds
}

// Key is what names of the same file have in common, or 0 where there is but one. A file that has changed since has
// another one: it may be a new file with the number of one that is gone.
func (h *Head) Key() uint64 {
	if !h.Linked {
		return 0
	}
	sum := fnv.New64a()
	_ = binary.Write(sum, binary.LittleEndian, []uint64{h.Ino, uint64(h.Changed)}) // a hash takes everything
	return max(1, sum.Sum64())
}

// OfFile reports whether an entry is about what the current file is to have.
func (h *Head) OfFile() bool { return h.Kind == WriteData || h.Kind == CloneData || h.Kind == EndFile }

// About is an entry about a file.
func About(k Kind, name string, st *unix.Stat_t) *Entry {
	e := &Entry{Head: Head{Kind: k, Ino: st.Ino, Size: st.Size, Changed: st.Ctim.Nano()}, Name: name}
	if e.Linked = st.Nlink > 1; KindOf(st) == unix.S_IFDIR {
		e.Linked, e.Size, e.Changed = false, 0, st.Mtim.Nano()
	}
	return e
}

// New is an entry that only has a name.
func New(k Kind, name string) *Entry { return &Entry{Head: Head{Kind: k}, Name: name} }

// Begin is what Batch.Entries and Batch.Next begin with, for AppendTo.
func Begin() []byte { return []byte{version} }

// AppendTo encodes an entry: its head, the count of its byte strings, and each with its length before it.
func (e *Entry) AppendTo(out []byte) []byte {
	out, _ = binary.Append(out, binary.LittleEndian, &e.Head) // no error: its size is fixed
	strs := [][]byte{[]byte(e.Name), e.Data}
	for name, value := range e.Xattrs {
		strs = append(strs, []byte(name), value)
	}
	out = binary.AppendUvarint(out, uint64(len(strs)))
	for _, s := range strs {
		out = append(binary.AppendUvarint(out, uint64(len(s))), s...)
	}
	return out
}

// All are those in Batch.Entries or Batch.Next, until an error. Their data is a part of what is decoded.
func All(in []byte) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		if len(in) == 0 || in[0] != version {
			yield(nil, ErrEntry)
			return
		}
		for in = in[1:]; len(in) > 0; {
			e := &Entry{}
			if in = e.decode(in); in == nil {
				yield(nil, ErrEntry)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// decode returns what is behind an entry, nil if it is not understood.
func (e *Entry) decode(in []byte) []byte {
	n, err := binary.Decode(in, binary.LittleEndian, &e.Head)
	if err != nil {
		return nil
	}
	in = in[n:]
	count, n := binary.Uvarint(in)
	if n <= 0 || count < 2 || count%2 != 0 {
		return nil
	}
	in = in[n:]
	name := ""
	for i := range count {
		size, n := binary.Uvarint(in)
		if n <= 0 || size > uint64(len(in)-n) {
			return nil
		}
		s := in[n : n+int(size)]
		in = in[n+int(size):]
		switch {
		case i == 0:
			e.Name, e.Xattrs = string(s), map[string][]byte{}
		case i == 1:
			e.Data = s
		case i%2 == 0:
			name = string(s)
		default:
			e.Xattrs[name] = s
		}
	}
	return in
}

// KindOf is the part of a file's mode that says what it is.
func KindOf(st *unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

// IsName reports whether a name can stand in a directory, and leads nowhere else.
func IsName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= unix.NAME_MAX &&
		!strings.ContainsAny(name, "/\x00")
}
