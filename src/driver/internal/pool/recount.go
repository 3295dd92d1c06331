package pool

import (
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/backend"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

const (
	// countInterval is how old the count of what volumes use may be where capacity is computed.
	countInterval = 5 * time.Second
	// countShare is how many times longer than a count took the next one waits at least: it never costs more than 2 % of a core.
	countShare = 50
	// recountPause is the least time between two recounts. Each reads all metadata of the filesystem, and a pod can make the next one necessary
	// as soon as the last one is done.
	recountPause = 10 * time.Minute
)

// count is when what the volumes use was last counted, and how long that took.
type count struct{ at, next time.Time }

// recount is whether the filesystem itself counts right, and what was done about it.
type recount struct {
	counts  poolfs.Counts
	told    bool      // that it does not
	started time.Time // the last recount
}

// miscounts tells that the counts of a quota that is in use are not right, as far as is known. p.mu is held.
func (p *Pool) miscounts() bool {
	return backend.Enforces(p.quota.Backend) && (p.recount.counts == poolfs.CountsWrong || p.recount.counts == poolfs.CountsAnew)
}

func (p *Pool) restartCount() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count = count{}
}

// countUse counts what the volumes of an open pool use, if that is due: one pass over the filesystem's quota for all of them.
func (p *Pool) countUse(disk poolfs.FS) {
	p.mu.Lock()
	now := p.set.Now()
	due := backend.Enforces(p.quota.Backend) && !now.Before(p.count.next) && (now.Sub(p.count.at) >= countInterval || p.ledger.guessing())
	if due {
		p.count.next = now.Add(time.Hour) // nobody else meanwhile
	}
	p.mu.Unlock()
	first := p.ledger.firstNumber()
	if !due || first == 0 {
		return
	}
	err := p.observe(disk, first)
	if err != nil {
		p.set.Log.Warn("cannot count what volumes use", logging.KeyPool, p.spec.Name, logging.KeyError, err)
	}
	end := p.set.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count = count{at: now, next: end.Add(countShare * end.Sub(now))}
}

// observe counts. The filesystem's own number is taken before and after, and the larger one counts: what volumes write or remove
// meanwhile must not make others' data disappear. Where the filesystem has lost count, nothing of what is used is taken to be a volume's;
// that too is looked at before and after.
func (p *Pool) observe(disk poolfs.FS, first uint32) error {
	before, err := disk.Space()
	if err != nil {
		return err
	}
	if right, err := p.countsRight(disk); err != nil || !right {
		p.ledger.distrust()
		return err
	}
	used, err := backend.Usage(disk, first)
	if err != nil {
		return err
	}
	if right, err := p.countsRight(disk); err != nil || !right {
		p.ledger.distrust()
		return err
	}
	after, err := disk.Space()
	if err != nil {
		return err
	}
	p.ledger.observe(max(before.Used, after.Used), used)
	return nil
}

// countsRight tells whether the filesystem's quota shows what accounts hold. Where it does not, a recount is started.
func (p *Pool) countsRight(disk poolfs.FS) (bool, error) {
	quotas, ok := poolfs.QuotasOf(disk)
	if !ok {
		return true, nil
	}
	counts, err := quotas.Counts()
	if err != nil {
		return false, fmt.Errorf("see whether the filesystem's quota counts right: %w", err)
	}
	p.mu.Lock()
	was, miscounted, now := p.recount, p.miscounts(), p.set.Now()
	due := counts == poolfs.CountsWrong && (was.started.IsZero() || now.Sub(was.started) >= recountPause)
	if due {
		p.recount.started = now
	}
	p.recount.counts = counts
	p.recount.told = counts == poolfs.CountsWrong || (was.told && counts != poolfs.CountsRight)
	changed := p.miscounts() != miscounted
	p.mu.Unlock()
	if changed {
		p.set.tellChanged()
	}
	p.announceCounts(was, counts)
	if due {
		p.startRecount(quotas)
	}
	return counts == poolfs.CountsRight, nil
}

// startRecount lets the filesystem count everything again. That it counts right again is seen later.
func (p *Pool) startRecount(quotas poolfs.Quotas) {
	if err := quotas.Recount(); err != nil {
		p.set.Log.Error("cannot start a recount of the filesystem's quota; it is tried again in ten minutes, or start it yourself: btrfs quota rescan",
			logging.KeyPool, p.spec.Name, logging.KeyPath, p.spec.Path, logging.KeyError, err)
		return
	}
	p.set.Log.Info("the filesystem's quota is being counted again", logging.KeyPool, p.spec.Name, logging.KeyPath, p.spec.Path)
}

// announceCounts tells that the filesystem has lost count, or counts right again.
func (p *Pool) announceCounts(was recount, is poolfs.Counts) {
	switch {
	case is == poolfs.CountsWrong && !was.told:
		const what = "the qgroups of btrfs have lost count, as they do when a pod takes a snapshot inside its volume: until they are counted again no volume is " +
			"held to its size, and everything on the disk counts as others'; the driver starts the count (btrfs quota rescan); simple quota does not lose count"
		p.set.Log.Error("the filesystem's quota has lost count", logging.KeyPool, p.spec.Name, logging.KeyPath, p.spec.Path, logging.KeyReason, what)
		p.set.Events.Warning("QuotaInconsistent", fmt.Sprintf("pool %s: %s", p.spec.Name, what))
	case is == poolfs.CountsRight && was.told:
		p.set.Log.Info("the filesystem's quota counts right again", logging.KeyPool, p.spec.Name, logging.KeyPath, p.spec.Path)
		p.set.Events.Normal("QuotaConsistent", fmt.Sprintf("pool %s: the filesystem's quota has been counted again, volumes are held to their sizes", p.spec.Name))
	}
}
