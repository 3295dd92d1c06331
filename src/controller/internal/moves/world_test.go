package moves_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/moves"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

const (
	key     = "topology.example/node"
	volume  = "pvc-1"
	pvName  = "pv-1"
	claimed = types.UID("claim-1")
)

// world is a cluster of two nodes, a and b, with a volume on a. Every call into it may fail.
type world struct {
	journal  map[string]string
	version  int
	pv       *corev1.PersistentVolume
	claim    *corev1.PersistentVolumeClaim
	nodes    map[string]*wire.MovingVolume
	trash    []string
	events   []string
	problems []string
	away     map[string]bool
	gone     map[string]bool
	batches  int // that are yet to come
	uids     int
	calls    int
	fails    int  // the call that fails, 0 for none
	after    bool // it fails once it is done
}

func newWorld() *world {
	w := &world{
		journal: map[string]string{}, away: map[string]bool{}, gone: map[string]bool{}, batches: 2,
		nodes: map[string]*wire.MovingVolume{"a": {
			Id: volume, Pool: "local", Bytes: 1 << 30, Used: 1 << 20, Mode: 0o750, Uid: 7, OnDelete: "trash",
			InodesDerived: true, Published: true,
		}},
		claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: claimed},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: pvName},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		},
	}
	w.pv = &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: pvName, UID: "pv-uid", Labels: map[string]string{"team": "shop"},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "driver"},
			Finalizers:  []string{"kubernetes.io/pv-protection"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: "fast",
			ClaimRef: &corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "shop", Name: "data", UID: claimed,
				ResourceVersion: "5",
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "driver", VolumeHandle: volume, VolumeAttributes: map[string]string{"storagePool": "local"},
			}},
			NodeAffinity: on("a"),
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	return w
}

func on(node string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}},
	}}}}
}

// room is a controller that has just started.
func (w *world) room(t *testing.T) *moves.Room {
	t.Helper()
	now := time.Unix(1e9, 0)
	r, err := moves.New(moves.Config{
		Journal: w, Volumes: w, Claims: w, Nodes: w, Targets: w, TopologyKey: key,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { now = now.Add(time.Minute); return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var errAPI = errors.New("the API has failed")

// call counts one that changes something, and does it unless it is to fail.
func (w *world) call(do func() error) error {
	w.calls++
	if w.calls == w.fails && !w.after {
		return errAPI
	}
	err := do()
	if w.calls == w.fails {
		return errAPI
	}
	return err
}

func (w *world) Load(context.Context) (map[string]string, string, error) {
	return maps.Clone(w.journal), fmt.Sprint(w.version), nil
}

func (w *world) Store(_ context.Context, version, id string, entry *string) error {
	return w.call(func() error {
		if version != fmt.Sprint(w.version) {
			return errors.New("conflict")
		}
		w.version++
		if entry == nil {
			delete(w.journal, id)
		} else {
			w.journal[id] = *entry
		}
		return nil
	})
}

func (w *world) PV(context.Context, string) (*corev1.PersistentVolume, error) {
	return w.pv.DeepCopy(), nil
}

func (w *world) MakePV(_ context.Context, pv *corev1.PersistentVolume) error {
	return w.call(func() error {
		if w.pv == nil {
			w.uids++
			w.pv = pv.DeepCopy()
			w.pv.UID = types.UID(fmt.Sprint("new-", w.uids))
		}
		return nil
	})
}

func (w *world) RemovePV(_ context.Context, pv *corev1.PersistentVolume) error {
	return w.call(func() error {
		if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
			panic("the data would be deleted")
		}
		source, there := w.nodes["a"]
		if there && source.GetMove() == "" || source.GetPublished() || w.nodes["b"].GetFilling() {
			panic("too early")
		}
		w.pv = nil
		w.claim.Status.Phase = corev1.ClaimLost
		return nil
	})
}

func (w *world) SetPolicy(
	_ context.Context, _ *corev1.PersistentVolume, policy corev1.PersistentVolumeReclaimPolicy,
) error {
	return w.call(func() error { w.pv.Spec.PersistentVolumeReclaimPolicy = policy; return nil })
}

func (w *world) Claim(context.Context, nodeapi.Claim) (*corev1.PersistentVolumeClaim, error) {
	return w.claim.DeepCopy(), nil
}

func (w *world) TouchClaim(context.Context, *corev1.PersistentVolumeClaim, string) error {
	return w.call(func() error { w.claim.Status.Phase = corev1.ClaimBound; return nil })
}

func (w *world) TellClaim(_ nodeapi.Claim, kind, reason, message string) {
	w.events = append(w.events, kind+" "+reason+": "+message)
}

// admin is the service of a node.
type admin struct {
	wire.AdminClient
	*world
	node string
}

func (w *world) Admin(node string) (wire.AdminClient, error) {
	if w.away[node] {
		return nil, status.Errorf(codes.Unavailable, "node %s is not connected", node)
	}
	return admin{nil, w, node}, nil
}

func (a admin) Moving(context.Context, *wire.MovingRequest, ...grpc.CallOption) (*wire.MovingVolume, error) {
	v, ok := a.nodes[a.node]
	if !ok {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	return v, nil
}

func (a admin) Leave(
	_ context.Context, q *wire.LeaveRequest, _ ...grpc.CallOption,
) (*wire.MovingVolume, error) {
	return nil, a.call(func() error {
		a.nodes[a.node].To, a.nodes[a.node].Move = q.GetTo(), q.GetMove()
		if q.GetTo() == "" {
			a.nodes[a.node].Move = ""
		}
		return nil
	})
}

func (a admin) Discard(
	_ context.Context, q *wire.DiscardRequest, _ ...grpc.CallOption,
) (*wire.DiscardResponse, error) {
	return nil, a.call(func() error {
		if q.GetKeepSeconds() != 24*60*60 || q.GetPvOn() != "b" {
			panic(q.String())
		}
		a.trash = append(a.trash, a.node)
		delete(a.nodes, a.node)
		return nil
	})
}

func (w *world) Bring(_ context.Context, m csi.Moving) error {
	return w.call(func() error {
		v := w.nodes["b"]
		if v == nil {
			v = &wire.MovingVolume{
				Id: volume, Filling: true, Move: m.Move, Bytes: m.Bytes,
			}
			w.nodes["b"] = v
		}
		if w.batches--; w.batches > 0 {
			v.Copied++
			return status.Error(codes.Aborted, "some is copied")
		}
		v.Filling = false
		return nil
	})
}

func (w *world) Remove(_ context.Context, node, _ string) error {
	return w.call(func() error { delete(w.nodes, node); return nil })
}

func (w *world) Gone(_ context.Context, node string) bool { return w.gone[node] }

func (w *world) Room(context.Context, string, string, string, string) (int64, []string) {
	return 2 << 30, w.problems
}

// start begins the move.
func (w *world) start(t *testing.T) {
	t.Helper()
	m, err := w.room(t).Start(t.Context(), &wire.StartMoveRequest{Pv: pvName, To: "b"})
	if err != nil || m.GetPhase() != "retain" {
		t.Fatal(m, err)
	}
}

// look looks some times, with a controller that has just started each time if fresh.
func (w *world) look(t *testing.T, fresh bool) {
	t.Helper()
	r := w.room(t)
	for range 20 {
		if fresh {
			r = w.room(t)
		}
		r.Look(t.Context(), true)
	}
}

// moved wants the volume on b, and nothing left.
func (w *world) moved(t *testing.T, about string) {
	t.Helper()
	switch {
	case len(w.journal) > 0:
		t.Errorf("%s: the journal has %v", about, w.journal)
	case w.pv == nil || w.claim.Status.Phase != corev1.ClaimBound:
		t.Errorf("%s: the claim is %s, of %v", about, w.claim.Status.Phase, w.pv)
	case w.pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete,
		w.pv.Spec.ClaimRef.UID != claimed, w.pv.Labels["team"] != "shop", w.pv.Name != pvName,
		w.pv.Spec.CSI.VolumeHandle != volume, w.pv.Spec.StorageClassName != "fast",
		w.pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "b":
		t.Errorf("%s: the PersistentVolume is %+v", about, w.pv)
	case w.nodes["a"] != nil || w.nodes["b"].GetFilling() || strings.Join(w.trash, "") != "a":
		t.Errorf("%s: %v, trash %v", about, w.nodes, w.trash)
	case !strings.Contains(strings.Join(w.events, ""), "Normal VolumeMoved: the volume is on node b now"):
		t.Errorf("%s: events %q", about, w.events)
	}
}

// stayed wants the volume on a, as it was.
func (w *world) stayed(t *testing.T, about string) {
	t.Helper()
	if len(w.journal) > 0 || w.pv == nil || w.nodes["b"] != nil || w.nodes["a"].GetMove() != "" ||
		w.pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || len(w.trash) > 0 ||
		w.pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "a" {
		t.Errorf("%s: journal %v, nodes %v, trash %v, %+v", about, w.journal, w.nodes, w.trash, w.pv)
	}
}
