package pool

import (
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/backend"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
)

// leftovers are numbers of the pool's range that no volume has, and to which data was still counted: what the filesystem is removing, or
// a volume that somebody moved into another pool of it.
type leftovers struct {
	numbers []uint32
	pause   time.Duration
	next    time.Time
}

func (p *Pool) noteLeftovers(numbers []uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leftovers = leftovers{numbers: numbers, pause: interval, next: p.set.Now().Add(interval)}
}

// dropLeftovers clears the limits to which nothing is counted any more, if it is time to look. What stays is looked at less and less often.
func (p *Pool) dropLeftovers(disk poolfs.FS) {
	p.mu.Lock()
	l, now := p.leftovers, p.set.Now()
	p.mu.Unlock()
	if len(l.numbers) == 0 || now.Before(l.next) {
		return
	}
	nobodys := slices.DeleteFunc(slices.Clone(l.numbers), func(number uint32) bool { return p.ledger.Owner(number) != "" })
	stay, _ := backend.DropAll(disk, nobodys) // what fails stays, and was told when it was found
	for _, number := range nobodys {
		if !slices.Contains(stay, number) {
			p.ledger.Free(number, "")
		}
	}
	pause := min(2*l.pause, longestPause)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leftovers = leftovers{numbers: stay, pause: pause, next: now.Add(pause)}
}
