package moves

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// Journal is where the moves stand that are under way, by the volumes' ids.
type Journal interface {
	Load(ctx context.Context) (entries map[string]string, version string, err error)
	// Store writes an entry, or with nil removes it. It fails where the journal is not of that version any more.
	Store(ctx context.Context, version, key string, entry *string) error
}

// Volumes are the PersistentVolumes of this driver.
type Volumes interface {
	// PV gives one by its name, nil where there is none.
	PV(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	MakePV(ctx context.Context, pv *corev1.PersistentVolume) error
	RemovePV(ctx context.Context, pv *corev1.PersistentVolume) error
	SetPolicy(ctx context.Context, pv *corev1.PersistentVolume, policy corev1.PersistentVolumeReclaimPolicy) error
}

// Claims are those of users.
type Claims interface {
	// Claim gives one, nil where it is gone or another one of that name is there.
	Claim(ctx context.Context, claim nodeapi.Claim) (*corev1.PersistentVolumeClaim, error)
	// TouchClaim has Kubernetes look at it again.
	TouchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error
	TellClaim(claim nodeapi.Claim, kind, reason, message string)
}

// Nodes do what is asked of nodes. Errors have a gRPC status.
type Nodes interface {
	Admin(node string) (wire.AdminClient, error)
	// Bring makes the volume on the other node. It is Aborted until all its data is there.
	Bring(ctx context.Context, m csi.Moving) error
	// Remove deletes what there is of a volume on a node.
	Remove(ctx context.Context, node, id string) error
	// Gone reports whether a node will not come back.
	Gone(ctx context.Context, node string) bool
}

// Config is what a room is made of; every field is required.
type Config struct {
	Journal     Journal
	Volumes     Volumes
	Claims      Claims
	Nodes       Nodes
	Targets     Targets
	TopologyKey string
	Log         *slog.Logger
	Now         func() time.Time
}

// Room has the moves of volumes.
type Room struct {
	Config
	mu      sync.Mutex
	known   map[string]entry
	copying map[string]bool
	noted   map[string]time.Time // when the progress of a copy was last written

	troubles logging.Troubles
}

const (
	// Interval is how often it is looked what there is to do.
	Interval = 2 * time.Second
	// stepTimeout bounds one step.
	stepTimeout = time.Minute
	// noteInterval is how often the progress of a copy is written into the journal.
	noteInterval = 10 * time.Second
	// copiesAtOnce is how many volumes are copied at a time; each crosses the network twice.
	copiesAtOnce = 4
	// maxMoves is how many may be under way: the journal is one object.
	maxMoves = 200
	// keptFor is how long what a moved volume has left behind stays in the trash at least.
	keptFor = 24 * time.Hour
)

// New returns a room.
func New(c Config) (*Room, error) {
	if c.Journal == nil || c.Volumes == nil || c.Claims == nil || c.Nodes == nil || c.Targets == nil ||
		c.TopologyKey == "" || c.Log == nil || c.Now == nil {
		return nil, errors.New("moves: a field of their Config is missing")
	}
	return &Room{
		Config: c, known: map[string]entry{}, copying: map[string]bool{},
		noted: map[string]time.Time{},
	}, nil
}

// Moving is the node on which a volume is that is being moved to another, "" of one that is not.
func (r *Room) Moving(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.known[id]
	if ok && (e.Phase == Discard || e.Phase == Restore) {
		return e.To
	}
	return e.From
}

// Look reads the journal. Where this replica leads, it goes on with every move that waits for nothing, and returns once
// each has made its steps or waits.
func (r *Room) Look(ctx context.Context, leads bool) {
	all, err := r.load(ctx)
	if err != nil {
		r.warn(ctx, "", "read the journal of moves", err)
		return
	}
	r.mu.Lock()
	r.known = maps.Clone(all) // steps change it
	r.mu.Unlock()
	if !leads {
		return
	}
	var working sync.WaitGroup
	for id := range all {
		working.Go(func() { r.work(ctx, id) })
	}
	working.Wait()
}

// warn logs a trouble that the next look finds again: of a move, or with "" of all.
func (r *Room) warn(ctx context.Context, id, trouble string, err error) {
	if err = fmt.Errorf("%s: %w", trouble, err); r.troubles.Fresh(id, err) {
		r.Log.WarnContext(ctx, "a move has trouble", logging.KeyID, id, logging.KeyError, err)
	}
}

func (r *Room) load(ctx context.Context) (map[string]entry, error) {
	texts, _, err := r.Journal.Load(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[string]entry, len(texts))
	for id, text := range texts {
		e, err := decode(id, text)
		if err != nil {
			r.warn(ctx, id, "it is left alone", err)
			continue
		}
		all[id] = e
	}
	return all, nil
}

var errChanged = errors.New("the move was changed meanwhile")

// update changes an entry that is in a phase, or with "" in any. change removes it by giving false.
func (r *Room) update(ctx context.Context, id string, in Phase, change func(*entry) (stays bool)) error {
	const attempts = 5
	var err error
	var e entry
	removing := false
	for range attempts {
		var texts map[string]string
		var version string
		if texts, version, err = r.Journal.Load(ctx); err != nil {
			return err
		}
		if _, ok := texts[id]; !ok && removing { // the answer got lost
			r.remember(id, e, false)
			return nil
		}
		if e, err = decode(id, texts[id]); err != nil {
			return err
		}
		if in != "" && e.Phase != in {
			return errChanged
		}
		var text *string
		if removing = !change(&e); !removing {
			if text, err = e.text(); err != nil {
				return err
			}
		}
		if err = r.Journal.Store(ctx, version, id, text); err == nil {
			r.remember(id, e, text != nil)
			return nil
		}
	}
	return err
}

func (r *Room) remember(id string, e entry, stays bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stays {
		r.known[id] = e
		return
	}
	delete(r.known, id)
	delete(r.noted, id)
}
