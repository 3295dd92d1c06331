package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/hostdir"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/transfer"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/copytree"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// verb is what was being done when an error came up: what a caller does with a code depends on it.
type verb string

const (
	create    verb = "create"
	remove    verb = "delete"
	cut       verb = "snapshot"
	publish   verb = "publish"
	unpublish verb = "unpublish"
	expand    verb = "expand" // in NodeExpandVolume, after the PersistentVolume has grown
	resize    verb = "resize" // in ControllerExpandVolume, before it grows
	read      verb = "read"   // everything that changes nothing
)

var (
	errElsewhere = errors.New("the volume is wanted on another node")
	errBadToken  = errors.New("starting_token was not given by this driver")
)

// row maps errors to a code; but has the verbs for which the code is another one.
type row struct {
	code codes.Code
	but  map[verb]codes.Code
	errs []error
}

// table is the one place where codes are chosen, for what external-provisioner and the kubelet do with them
// (docs/reference/errors.md): in CreateVolume only ResourceExhausted lets the scheduler try another node, and
// Unavailable keeps the claim here until the pool is back; in NodeExpandVolume only FailedPrecondition lets the pod
// start, at the old size; in ControllerExpandVolume only OutOfRange, InvalidArgument and NotFound let the user ask for
// another size: after any other code csi-resizer goes on with the old one; in CreateSnapshot nobody can delete the
// VolumeSnapshot after ResourceExhausted and Unavailable. The first row that matches counts.
func table() []row {
	full := map[verb]codes.Code{
		expand: codes.FailedPrecondition, resize: codes.OutOfRange, cut: codes.FailedPrecondition,
	}
	otherSize := map[verb]codes.Code{resize: codes.OutOfRange}
	elsewhere := map[verb]codes.Code{create: codes.ResourceExhausted, cut: codes.FailedPrecondition}
	return []row{
		{codes.Aborted, nil, []error{volume.ErrBusy, ledger.ErrBusy, store.ErrConcurrent}},
		{codes.Aborted, map[verb]codes.Code{cut: codes.FailedPrecondition}, []error{
			volume.ErrFilling, volume.ErrEnforcing,
		}},
		{codes.InvalidArgument, nil, []error{
			nodeapi.ErrInvalidID, store.ErrUnwritten, volume.ErrInvalid, bindmount.ErrTarget,
		}},
		{codes.InvalidArgument, nil, []error{pool.ErrUnknown, pool.ErrAmbiguous, pool.ErrSeveral}},
		{codes.Unavailable, elsewhere, []error{pool.ErrAbsent}},
		{codes.ResourceExhausted, map[verb]codes.Code{cut: codes.FailedPrecondition}, []error{pool.ErrNotHere}},
		{codes.FailedPrecondition, nil, []error{pool.ErrPresent, pool.ErrOtherCluster}},
		{codes.ResourceExhausted, full, []error{ledger.ErrClosed, ledger.ErrNoSpace, quota.ErrExhausted}},
		{codes.OutOfRange, nil, []error{quota.ErrTooSmall}},
		{codes.InvalidArgument, elsewhere, []error{quota.ErrUnsupported}},
		{codes.FailedPrecondition, otherSize, []error{quota.ErrNotCounted, volume.ErrBelowUse, volume.ErrNotEnforced}},
		{codes.FailedPrecondition, nil, []error{
			volume.ErrUnsupported, hostdir.ErrRefused, store.ErrUndeletable, store.ErrNoSnapshots, nodeapi.ErrNamed,
		}},
		{codes.OutOfRange, map[verb]codes.Code{cut: codes.FailedPrecondition}, []error{
			volume.ErrOutOfRange, transfer.ErrTooLarge,
		}},
		{codes.AlreadyExists, nil, []error{volume.ErrExists}},
		{codes.DataLoss, nil, []error{volume.ErrLost}},
		{codes.FailedPrecondition, nil, []error{store.ErrBroken, store.ErrNewer}},
		{codes.NotFound, map[verb]codes.Code{remove: codes.OK}, []error{store.ErrNotFound}},
		{codes.FailedPrecondition, nil, []error{
			volume.ErrPublished, volume.ErrLeaving, volume.ErrCopied, volume.ErrSource, volume.ErrTargetTaken,
			volume.ErrSingleWriter, copytree.ErrChanged, copytree.ErrDeep, copytree.ErrPosition,
		}},
		{codes.Unavailable, nil, []error{nodeapi.ErrClusterUnknown, volume.ErrUncertain}},
		{codes.Internal, nil, []error{store.ErrUnsynced}},
		{codes.ResourceExhausted, nil, []error{errElsewhere}},
		{codes.Aborted, nil, []error{errBadToken}}, // spec, "ListVolumes Errors"
		{codes.ResourceExhausted, full, []error{syscall.ENOSPC, syscall.EDQUOT}},
		{codes.Unavailable, map[verb]codes.Code{
			create: codes.ResourceExhausted, expand: codes.FailedPrecondition, cut: codes.FailedPrecondition,
		}, []error{syscall.EROFS}},
		{codes.DeadlineExceeded, nil, []error{context.DeadlineExceeded}},
		{codes.Canceled, nil, []error{context.Canceled}},
	}
}

// maxMessage bounds a status message in bytes: it travels in a header.
const maxMessage = 2048

// toStatus is the gRPC status of a domain error: Internal where the table does not know it, nil where it is none.
func toStatus(v verb, err error) error {
	if err == nil {
		return nil
	}
	// Of a check that both endpoints have. An error that wraps a status got it from somebody else, and has a row here.
	if _, is := err.(interface{ GRPCStatus() *status.Status }); is {
		return err
	}
	code := codes.Internal
	for _, r := range table() {
		if slices.ContainsFunc(r.errs, func(known error) bool { return errors.Is(err, known) }) {
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

// Status is the gRPC status of an error of the domain, for who asked outside of CSI; nil where it is none.
func Status(err error) error { return toStatus(read, err) }

// answered gives a response, or the status of the error that came up instead.
func answered[R any](v verb, response *R, err error) (*R, error) {
	if err := toStatus(v, err); err != nil {
		return nil, err
	}
	return response, nil
}

func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", volume.ErrInvalid, field, fmt.Errorf(format, args...))
}
