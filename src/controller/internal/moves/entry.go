// Package moves brings volumes from node to node: the data is copied while no pod uses the volume, then its
// PersistentVolume is replaced by one of the same name that is on the other node. What is under way stands in a
// journal, so that it goes on after a restart, wherever it was interrupted.
package moves

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// Phase is how far a move is.
type Phase string

// Phases, in their order. Before Swap a move can be aborted; from then on its PersistentVolume may be gone.
const (
	Retain  Phase = "retain"  // its reclaim policy becomes Retain, so that nothing deletes the data
	Leave   Phase = "leave"   // no pod gets it any more where it is, and those that have it end
	Copy    Phase = "copy"    // its data is copied
	Swap    Phase = "swap"    // its PersistentVolume becomes one on the other node
	Discard Phase = "discard" // what it leaves behind goes into the trash
	Restore Phase = "restore" // the reclaim policy is again what it was
	Abort   Phase = "abort"   // it stays where it is
)

// entry is a move in the journal.
type entry struct {
	identity
	// Move is the digest of the identity. Both nodes keep it before the PersistentVolume goes: after that the journal,
	// which others may be able to write, is believed only if the target node has the same.
	Move   string                               `json:"move"`
	Policy corev1.PersistentVolumeReclaimPolicy `json:"policy"` // at the beginning
	Phase  Phase                                `json:"phase"`
	// Labels and Annotations are those of the new PersistentVolume.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Used        int64             `json:"used,omitempty"`
	Copied      int64             `json:"copied,omitempty"`
	Snapshots   int64             `json:"snapshots,omitempty"`
	Published   bool              `json:"published,omitempty"`
	Message     string            `json:"message,omitempty"`
}

// identity is what a move is, from its beginning to its end.
type identity struct {
	PV             string        `json:"pv"`
	UID            string        `json:"pvUID"`
	Handle         string        `json:"handle"`
	Pool           string        `json:"pool"`
	Claim          nodeapi.Claim `json:"claim"`
	From           string        `json:"from"`
	To             string        `json:"to"`
	LeaveSnapshots bool          `json:"leaveSnapshots,omitempty"`
	Started        time.Time     `json:"started"`
	// Spec is that of the new PersistentVolume.
	Spec corev1.PersistentVolumeSpec `json:"spec"`
}

func (i identity) digest() string {
	data, err := json.Marshal(i)
	if err != nil { // there is nothing in it that could fail
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// decode reads an entry of the journal, which has to be of the volume that it is kept by.
func decode(id, text string) (e entry, err error) {
	if err = json.Unmarshal([]byte(text), &e); err != nil {
		return e, fmt.Errorf("read the move of %s in the journal: %w", id, err)
	}
	if e.Handle != id || e.digest() != e.Move {
		return e, fmt.Errorf("the move of %s in the journal is not as the controller has written it; remove that key "+
			"from the ConfigMap of moves, and run kubectl hpp move --abort for its claim", id)
	}
	return e, nil
}

// abortable reports whether the volume can still stay where it is.
func (e entry) abortable() bool { return e.Phase == Retain || e.Phase == Leave || e.Phase == Copy }

func (e entry) wire() *wire.Move {
	return &wire.Move{
		Pv: e.PV, ClaimNamespace: e.Claim.Namespace, ClaimName: e.Claim.Name, From: e.From, To: e.To, Pool: e.Pool,
		Phase: string(e.Phase), Message: e.Message, Started: e.Started.UnixNano(), Bytes: e.bytes(), Used: e.Used,
		Copied: e.Copied, Snapshots: e.Snapshots, Published: e.Published,
	}
}

func (e entry) bytes() int64 {
	size := e.Spec.Capacity[corev1.ResourceStorage]
	return size.Value()
}

func (e entry) text() (*string, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("write the move of %s: %w", e.Handle, err)
	}
	text := string(data)
	return &text, nil
}
