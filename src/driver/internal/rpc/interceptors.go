package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// logCalls writes one record per call: errors always, what changes something at info, what is asked every few seconds
// only at debug. The request is written at debug alone, without its secrets.
func logCalls(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		start := time.Now()
		response, err := handle(ctx, request)
		method := path.Base(info.FullMethod)
		level := levelOf(method, status.Code(err))
		if !log.Enabled(ctx, level) {
			return response, err
		}
		attributes := []slog.Attr{
			slog.String(logging.KeyMethod, method),
			slog.String(logging.KeyCode, status.Code(err).String()),
			slog.Duration(logging.KeyDuration, time.Since(start)),
		}
		if id := subject(request); id != "" {
			attributes = append(attributes, slog.String(logging.KeyID, id))
		}
		if log.Enabled(ctx, slog.LevelDebug) {
			attributes = append(attributes, slog.String(logging.KeyRequest, protosanitizer.StripSecrets(request).String()))
		}
		if err != nil {
			attributes = append(attributes, slog.String(logging.KeyError, status.Convert(err).Message()))
		}
		log.LogAttrs(ctx, level, "answered a call", attributes...)
		return response, err
	}
}

// levelOf is how loud a call is: an error of the driver's own is one for an admin, any other is the caller's to act on.
func levelOf(method string, code codes.Code) slog.Level {
	switch code {
	case codes.OK:
	case codes.Internal, codes.DataLoss, codes.Unknown:
		return slog.LevelError
	case codes.Unimplemented, codes.Canceled:
		return slog.LevelInfo
	default:
		return slog.LevelWarn
	}
	switch method {
	case "CreateVolume", "DeleteVolume", "NodePublishVolume", "NodeUnpublishVolume":
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

// subject is the volume that a request is about, "" where it is about none.
func subject(request any) string {
	const longest = 128 // an id that is longer is refused; the log need not have all of it
	id := ""
	switch r := request.(type) {
	case interface{ GetVolumeId() string }:
		id = r.GetVolumeId()
	case interface{ GetName() string }:
		id = r.GetName()
	}
	return id[:min(len(id), longest)]
}

// newDurations is how long calls took, in seconds, by method and code. The middleware's own histogram knows no code,
// and a refusal takes a fraction of what the work takes: together they would show the speed of neither.
func newDurations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "hpp_grpc_handling_seconds",
		Help:    "How long CSI calls took, by method and code.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"grpc_method", "grpc_code"})
}

// timeCalls observes every call under the code that grpc_server_handled_total counts it under.
func timeCalls(durations *prometheus.HistogramVec) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		start := time.Now()
		response, err := handle(ctx, request)
		durations.WithLabelValues(path.Base(info.FullMethod),
			grpcprom.FromError(err).Code().String()).Observe(time.Since(start).Seconds())
		return response, err
	}
}

// setDeadline gives calls without a deadline one, so that none is under way for ever.
func setDeadline(timeout time.Duration) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if _, ok := ctx.Deadline(); !ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		return handle(ctx, request)
	}
}

// recoverPanics keeps the driver up when a call panics; the caller learns only that it did.
func recoverPanics(log *slog.Logger) grpc.UnaryServerInterceptor {
	return recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		log.ErrorContext(ctx, "a call panicked", logging.KeyPanic, fmt.Sprint(p), logging.KeyStack, string(debug.Stack()))
		return status.Error(codes.Internal, "the driver has a bug: the call panicked; its log has the details")
	}))
}
