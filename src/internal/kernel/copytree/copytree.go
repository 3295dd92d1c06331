// Package copytree copies a tree of files that somebody hostile may have made, in slices: a Reader turns the tree into
// batches, a Sink makes a tree of them, on the same filesystem, another one, or another node. Between slices neither
// has anything open, and both can be new ones: where to go on is in the batch. Neither follows a link, enters a mount,
// or leaves its tree, and the Sink does not trust the batches either.
//
// What is copied: directories, files with their holes, links, hard links, FIFOs, sockets and devices; of each the
// owner, the mode, both times, the flags that chattr(1) calls A, a, D, d, i and S, and its extended attributes but for
// those of security modules. Project IDs are not, and of the root neither a nor i: a copy with these could be neither
// renamed nor removed. Errors are *fs.PathError around a syscall.Errno, or one of those below.
package copytree

import (
	"errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree/entry"
)

// Errors that a caller can act on.
var (
	// ErrPosition is a position from which this tree cannot be read on: the copy has to begin anew.
	ErrPosition = errors.New("the copy cannot go on from this position")
	// ErrChanged is a file or directory that changed while it was copied; the error names it.
	ErrChanged = errors.New("changed while it was copied")
	// ErrNoClone says that data cannot be cloned from there to here: the copy has to begin anew, without Reader.Clone.
	ErrNoClone = errors.New("this data cannot be cloned")
	// ErrLeased is a file that a program has a lease of (F_SETLEASE of fcntl(2)). It is asked to give that back, and
	// has lost it some 45 seconds later: try again, with nothing open meanwhile.
	ErrLeased = errors.New("a program has a lease of this file")
	// ErrBatch is a batch that no Reader makes, or that does not belong here.
	ErrBatch = entry.ErrEntry
	// ErrDeep is a tree that is too deep to be copied.
	ErrDeep = errors.New("directories are nested more than 1024 deep")
)

const (
	maxDepth   = 1024     // directories below each other; all are open while a slice is read or applied
	maxSteps   = 1024     // files, directories and pieces of data in a batch
	leastPiece = 4 << 10  // bytes of data that are read at once at least
	clonePiece = 64 << 20 // bytes that are cloned at once at most: XFS makes a transaction for each extent
	cloneBatch = 1 << 30  // bytes that are cloned in a batch, about
)

// Batch is one slice of a tree. Batches are to be applied in order; from which one on again does not matter.
type Batch struct {
	Entries []byte // for Sink.Apply
	Next    []byte // the position behind it, to be stored once the target was synced; of the last one for Sink.Finish
	Files   int64  // files, directories, links and nodes that begin in it
	Bytes   int64  // of data in it, or to be cloned
	Changed int64  // what changed meanwhile, or was gone (see Reader.BestEffort)
	Skipped int64  // mount points, and subvolumes of btrfs: empty directories in the copy
	Last    bool
}
