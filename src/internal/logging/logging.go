// Package logging sets up log/slog the same way in every binary of the project.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"k8s.io/klog/v2"
)

// Keys of log records.
const (
	KeyAddress     = "address"
	KeyBackend     = "backend"
	KeyBytes       = "bytes"
	KeyChanged     = "changed"
	KeyCheck       = "check"
	KeyClaim       = "claim"
	KeyCode        = "code"
	KeyCount       = "count"
	KeyDefinition  = "definition"
	KeyDuration    = "duration"
	KeyEndpoint    = "endpoint"
	KeyEnforcement = "enforcement"
	KeyError       = "error"
	KeyFiles       = "files"
	KeyID          = "id"
	KeyLease       = "lease"
	KeyMessage     = "message"
	KeyMethod      = "method"
	KeyNamespace   = "namespace"
	KeyNode        = "node"
	KeyObjects     = "objects"
	KeyOwner       = "owner"
	KeyPV          = "persistentVolume"
	KeyPanic       = "panic"
	KeyPath        = "path"
	KeyPool        = "pool"
	KeyPools       = "pools"
	KeyProvisioner = "provisioner"
	KeyQuotaID     = "quotaID"
	KeyRead        = "read"
	KeyReason      = "reason"
	KeyRequest     = "request"
	KeySkipped     = "skipped"
	KeyStack       = "stack"
	KeyVersion     = "version"
	KeyVolumes     = "volumes"
)

// New returns a logger that writes records of a level (debug, info, warn or error) and above in a format (json or
// text).
func New(w io.Writer, level, format string) (*slog.Logger, error) {
	var least slog.Level
	switch strings.ToLower(level) {
	case "debug":
		least = slog.LevelDebug
	case "info":
		least = slog.LevelInfo
	case "warn":
		least = slog.LevelWarn
	case "error":
		least = slog.LevelError
	default:
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: least}
	switch strings.ToLower(format) {
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	default:
		return nil, fmt.Errorf("log format %q: want json or text", format)
	}
}

// CaptureKlog makes the Kubernetes libraries of this process log to the logger. It is for main programs: klog has one
// logger for all.
func CaptureKlog(log *slog.Logger) { klog.SetSlogLogger(log) }
