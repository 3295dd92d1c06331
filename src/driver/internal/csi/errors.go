package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
)

// verb is what was being done when an error came up: what a caller does with a code depends on it.
type verb string

const (
	create    verb = "create"
	remove    verb = "delete"
	publish   verb = "publish"
	unpublish verb = "unpublish"
	expand    verb = "expand"
	read      verb = "read" // everything that changes nothing
)

// errElsewhere refuses a volume that must be accessible from another node.
var errElsewhere = errors.New("the volume is wanted on another node")

// errBadToken refuses a page token that this driver did not give.
var errBadToken = errors.New("starting_token was not given by this driver")

// row maps an error to a code; but has the verbs for which the code is another one.
type row struct {
	err  error
	code codes.Code
	but  map[verb]codes.Code
}

// table is the one place where codes are chosen, for what external-provisioner and the kubelet do with them
// (docs/reference/errors.md): in CreateVolume only ResourceExhausted lets the scheduler try another node, and
// Unavailable keeps the claim here until the pool is back; in NodeExpandVolume only FailedPrecondition lets the pod
// start, at the old size. The first row that matches counts.
func table() []row {
	full := map[verb]codes.Code{expand: codes.FailedPrecondition}
	elsewhere := map[verb]codes.Code{create: codes.ResourceExhausted}
	return []row{
		{err: volume.ErrBusy, code: codes.Aborted},
		{err: ledger.ErrBusy, code: codes.Aborted},
		{err: records.ErrInvalidID, code: codes.InvalidArgument},
		{err: volume.ErrInvalid, code: codes.InvalidArgument},
		{err: bindmount.ErrTarget, code: codes.InvalidArgument},
		{err: pool.ErrUnknown, code: codes.InvalidArgument},
		{err: pool.ErrAmbiguous, code: codes.InvalidArgument},
		{err: pool.ErrAbsent, code: codes.Unavailable, but: elsewhere},
		{err: pool.ErrNotHere, code: codes.ResourceExhausted},
		{err: pool.ErrPresent, code: codes.FailedPrecondition},
		{err: ledger.ErrClosed, code: codes.ResourceExhausted, but: full},
		{err: ledger.ErrNoSpace, code: codes.ResourceExhausted, but: full},
		{err: quota.ErrExhausted, code: codes.ResourceExhausted, but: full},
		{err: quota.ErrTooSmall, code: codes.OutOfRange},
		{err: quota.ErrUnsupported, code: codes.InvalidArgument, but: elsewhere},
		{err: quota.ErrNotCounted, code: codes.FailedPrecondition},
		{err: volume.ErrBelowUse, code: codes.FailedPrecondition},
		{err: volume.ErrNotEnforced, code: codes.FailedPrecondition},
		{err: volume.ErrUnsupported, code: codes.FailedPrecondition},
		{err: volume.ErrNamed, code: codes.FailedPrecondition},
		{err: volume.ErrOutOfRange, code: codes.OutOfRange},
		{err: volume.ErrExists, code: codes.AlreadyExists},
		{err: volume.ErrLost, code: codes.DataLoss},
		{err: records.ErrBroken, code: codes.FailedPrecondition},
		{err: records.ErrNotFound, code: codes.NotFound, but: map[verb]codes.Code{remove: codes.OK}},
		{err: volume.ErrPublished, code: codes.FailedPrecondition},
		{err: volume.ErrTargetTaken, code: codes.FailedPrecondition},
		{err: volume.ErrSingleWriter, code: codes.FailedPrecondition},
		{err: volume.ErrClusterUnknown, code: codes.Unavailable},
		{err: errElsewhere, code: codes.ResourceExhausted},
		{err: errBadToken, code: codes.Aborted}, // spec, "ListVolumes Errors"
		{err: syscall.ENOSPC, code: codes.ResourceExhausted, but: full},
		{err: syscall.EDQUOT, code: codes.ResourceExhausted, but: full},
		{err: syscall.EROFS, code: codes.Unavailable, but: map[verb]codes.Code{
			create: codes.ResourceExhausted, expand: codes.FailedPrecondition,
		}},
		{err: context.DeadlineExceeded, code: codes.DeadlineExceeded},
		{err: context.Canceled, code: codes.Canceled},
	}
}

// maxMessage bounds a status message in bytes: it travels in a header.
const maxMessage = 2048

// toStatus is the gRPC status of a domain error; nil where the table calls it no error. What the table does not know
// is Internal, never Unknown.
func toStatus(v verb, err error) error {
	if err == nil {
		return nil
	}
	code := codes.Internal
	for _, r := range table() {
		if errors.Is(err, r.err) {
			code = r.code
			if other, ok := r.but[v]; ok {
				code = other
			}
			break
		}
	}
	message := err.Error()
	if len(message) > maxMessage {
		message = message[:maxMessage] + "…"
	}
	return status.Error(code, strings.ToValidUTF8(message, "\uFFFD"))
}

// invalid is bad input in a field of the request.
func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", volume.ErrInvalid, field, fmt.Errorf(format, args...))
}
