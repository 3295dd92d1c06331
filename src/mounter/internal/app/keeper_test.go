package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/waittest"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/mounter/internal/claim"
)

// TestUnmountedByAnAdmin is mounted again, and what hangs or is gone is not ready.
func TestUnmountedByAnAdmin(t *testing.T) {
	p := newPool(t)
	source := p.claim(t)
	k := newKeeper(claim.New(p.pod, claim.Source{Directory: source}, slog.New(slog.DiscardHandler)),
		slog.New(slog.DiscardHandler))
	k.every = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); k.keepMounted(ctx) }()
	for range 3 {
		waittest.Until(t, "the claim is mounted", func() bool { return p.mounted(t) })
		must(t, unix.Unmount(filepath.Join(p.host, "csi"), unix.MNT_DETACH))
	}
	waittest.Until(t, "it is ready", func() bool { return k.ready(ctx) == nil })
	must(t, os.RemoveAll(filepath.Join(p.root, "volume")))
	waittest.Until(t, "it is not ready without a claim", func() bool { return k.ready(ctx) != nil })
	stop()
	<-ended
	k.err, k.looked = nil, time.Now().Add(-2*tooOld)
	if err := k.ready(t.Context()); err == nil || !strings.Contains(err.Error(), "hangs") {
		t.Errorf("after no look for long: %v", err)
	}
}

// lines are what a log says.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// TestReleaseWhileTheDriverLooks: what is open for a moment does not leave the mount for good.
func TestReleaseWhileTheDriverLooks(t *testing.T) {
	p := newPool(t)
	log := make(lines)
	k := newKeeper(claim.New(p.pod, claim.Source{Directory: p.claim(t)}, slog.New(slog.DiscardHandler)),
		slog.New(slog.NewTextHandler(log, nil)))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { defer close(log); k.keepMounted(ctx) }()
	var open *os.File
	for line := range log {
		var err error
		switch {
		case strings.Contains(line, "the claim is mounted"):
			open, err = os.Open(filepath.Join(p.host, "csi"))
			stop()
		case strings.Contains(line, "is in use"):
			err = open.Close()
		}
		must(t, err)
	}
	if open == nil || p.mounted(t) {
		t.Errorf("opened %v; the claim stays mounted", open)
	}
}
