package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/mounter/internal/claim"
)

const (
	lookEvery = 5 * time.Second
	// firstPause doubles with each failure, up to lastPause.
	firstPause, lastPause = time.Second, time.Minute
	// tooOld is the age of an answer that says nothing any more: the disk hangs.
	tooOld = 30 * time.Second
	// A process that looks into csi/, as the driver does, is done in a moment; the pod has a grace of 30 s.
	releaseTries, releasePause = 60, 250 * time.Millisecond
)

// keeper keeps a claim at its place.
type keeper struct {
	claim *claim.Claim
	log   *slog.Logger
	every time.Duration

	mu     sync.Mutex
	looked time.Time // when the last look ended
	err    error     // what it found
}

func newKeeper(c *claim.Claim, log *slog.Logger) *keeper {
	return &keeper{claim: c, log: log, every: lookEvery, err: errors.New("nothing was looked at yet")}
}

// keepMounted looks, and mounts what is missing, until ctx ends. Then it unmounts what nobody uses.
func (k *keeper) keepMounted(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; {
		wait := k.every
		if k.ensureClaim(ctx) == nil {
			pause = firstPause
		} else {
			wait, pause = pause, min(2*pause, lastPause)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	released, err := k.release(ctx)
	switch {
	case err != nil:
		k.log.WarnContext(ctx, "the claim stays mounted", logging.KeyError, err)
	case released:
		k.log.InfoContext(ctx, "unmounted the claim; it has no volumes")
	default:
		k.log.InfoContext(ctx, "stopped; what is mounted stays")
	}
}

// release tries again while a process uses the claim: once its pool is gone, nobody else would ever unmount it.
func (k *keeper) release(ctx context.Context) (bool, error) {
	for try := 1; ; try++ {
		released, err := k.claim.Release()
		if !errors.Is(err, unix.EBUSY) || try == releaseTries {
			return released, err
		}
		if try == 1 {
			k.log.InfoContext(ctx, "the claim is in use; trying again to unmount it", logging.KeyError, err)
		}
		time.Sleep(releasePause)
	}
}

func (k *keeper) ensureClaim(ctx context.Context) error {
	done, err := k.claim.Ensure(ctx)
	k.mu.Lock()
	news := done || k.err != nil
	k.looked, k.err = time.Now(), err
	k.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		k.log.ErrorContext(ctx, "the claim is not mounted", logging.KeyError, err)
	case err == nil && news:
		k.log.InfoContext(ctx, "the claim is mounted")
	}
	return err
}

// ready fails while the claim is not at its place, as far as is known.
func (k *keeper) ready(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if age := time.Since(k.looked); k.err == nil && age > tooOld {
		return fmt.Errorf("the last look at the claim ended %s ago: its disk hangs", age.Round(time.Second))
	}
	return k.err
}
