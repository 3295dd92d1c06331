// Package move moves volumes to other nodes: the controller copies and swaps, and this evicts the pods that use them,
// with the rights of the user.
package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/pods"
)

// ErrRefused is a move that is not begun; what is said before says why.
var ErrRefused = errors.New("the volume is not moved")

// Controller runs a command in the controller, and reads its answer.
type Controller interface {
	Ask(ctx context.Context, answer any, args ...string) error
}

// Mover moves volumes.
type Mover struct {
	API        kubernetes.Interface
	Controller Controller
	Out        io.Writer
	// Interval is how often it looks how far a move is, and tries to evict a pod again.
	Interval time.Duration
	Now      func() time.Time
}

// Request is what to move.
type Request struct {
	Namespace, Claim, To string
	LeaveSnapshots       bool
}

func (q Request) start(pv string, more ...string) []string {
	args := []string{"move", "start", pv, "--to", q.To}
	if q.LeaveSnapshots {
		args = append(args, "--leave-snapshots")
	}
	return append(args, more...)
}

// Plan is what a move would do.
type Plan struct {
	nodeapi.Move
	Pods []corev1.Pod // that use the claim
}

// Plan looks at a claim, prints what its move would do, and refuses one that cannot be made.
func (m *Mover) Plan(ctx context.Context, q Request) (p Plan, err error) {
	claim, err := m.API.CoreV1().PersistentVolumeClaims(q.Namespace).Get(ctx, q.Claim, metav1.GetOptions{})
	if err != nil {
		return p, fmt.Errorf("look at claim %s/%s: %w", q.Namespace, q.Claim, err)
	}
	if claim.Spec.VolumeName == "" {
		return p, fmt.Errorf("%w: claim %s/%s has no volume yet", ErrRefused, q.Namespace, q.Claim)
	}
	if err := m.Controller.Ask(ctx, &p.Move, q.start(claim.Spec.VolumeName, "--dry-run")...); err != nil {
		return p, err
	}
	if p.Pods, err = pods.Using(ctx, m.API, q.Namespace, q.Claim); err != nil {
		return p, err
	}
	p.Problems = append(p.Problems, problemsOf(claim, p.Pods)...)
	if slices.ContainsFunc(p.Pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" }) {
		evict := cluster.Right{Namespace: q.Namespace, Resource: "pods/eviction", Verbs: []string{"create"}}
		if err := cluster.May(ctx, m.API, evict); err != nil {
			p.Problems = append(p.Problems, "the claim's pods cannot be evicted: "+err.Error())
		}
	}
	around, err := pods.Around(ctx, m.API, p.Pods)
	if err != nil {
		return p, err
	}
	// A node that is not there is a problem already, and its taints are not always for this user to read.
	if node, err := m.API.CoreV1().Nodes().Get(ctx, q.To, metav1.GetOptions{}); err == nil {
		for _, pod := range p.Pods {
			if why := around.Unfit(pod, node); why != "" {
				p.Problems = append(p.Problems, why)
			}
		}
	}
	m.print(p)
	if len(p.Problems) > 0 {
		return p, fmt.Errorf("%w: claim %s/%s", ErrRefused, q.Namespace, q.Claim)
	}
	return p, nil
}

func (m *Mover) print(p Plan) {
	m.say("claim %s: %s of %s, of which at most %s are copied, in pool %s", p.Claim, p.PV,
		bytesize.Format(p.Bytes), bytesize.Format(p.Used), p.Pool)
	room := ""
	if p.Room > 0 {
		room = ", which has room for a volume of " + bytesize.Format(p.Room)
	}
	m.say("  from node %s to node %s%s", p.From, p.To, room)
	if p.Phase != "" {
		m.say("  it is on its way already (%s): %s", p.Phase, p.Message)
	}
	for _, pod := range p.Pods {
		if pod.Spec.NodeName != "" {
			m.say("  pod %s on node %s is evicted, and cannot start before the data is on node %s", pod.Name,
				pod.Spec.NodeName, p.To)
		}
	}
	if p.Snapshots > 0 {
		m.say("  %d snapshots stay on node %s", p.Snapshots, p.From)
	}
	for _, problem := range p.Problems {
		m.say("  problem: %s", problem)
	}
}

func (m *Mover) say(format string, args ...any) { _, _ = fmt.Fprintf(m.Out, format+"\n", args...) }

// Apply moves a volume that was planned, or goes on with that, until the claim is bound on the other node.
func (m *Mover) Apply(ctx context.Context, q Request, p Plan) error {
	if err := m.Controller.Ask(ctx, &p.Move, q.start(p.PV)...); err != nil {
		return err
	}
	err := m.follow(ctx, q, p)
	if ctx.Err() != nil {
		m.say("the move goes on without this command; the same command shows it again, and --abort ends it")
	}
	return err
}

// follow evicts pods, and shows how far the move is, until it has ended.
func (m *Mover) follow(ctx context.Context, q Request, p Plan) error {
	progress, last, trouble, silent := progress{}, "", "", 0
	for {
		is, found, err := m.find(ctx, p.PV)
		switch {
		case err != nil:
			if silent++; silent > maxSilent || ctx.Err() != nil {
				return err
			}
		case !found:
			return m.ended(ctx, q, p)
		default:
			silent = 0
			if says := progress.line(is, m.Now()); says != last {
				m.say("%s: %s", p.Claim, says)
				last = says
			}
			err = m.clear(ctx, q, is)
		}
		if err != nil && err.Error() != trouble {
			m.say("  %v", err)
		}
		trouble = fmt.Sprint(err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(m.Interval):
		}
	}
}

// maxSilent is how often the controller may not answer in a row.
const maxSilent = 30

func (m *Mover) find(ctx context.Context, pv string) (is nodeapi.Move, found bool, err error) {
	var all []nodeapi.Move
	if err := m.Controller.Ask(ctx, &all, "move", "list"); err != nil {
		return is, false, err
	}
	i := slices.IndexFunc(all, func(is nodeapi.Move) bool { return is.PV == pv })
	if i < 0 {
		return is, false, nil
	}
	return all[i], true, nil
}

// ended says where the volume is.
func (m *Mover) ended(ctx context.Context, q Request, p Plan) error {
	claim, err := m.API.CoreV1().PersistentVolumeClaims(q.Namespace).Get(ctx, q.Claim, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at claim %s: %w", p.Claim, err)
	}
	pv, err := m.API.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look where claim %s is: %w", p.Claim, err)
	}
	if on := NodeOf(pv); on != q.To {
		return fmt.Errorf("the volume of claim %s is on node %s: the move was ended; kubectl describe pvc -n %s %s "+
			"says why", p.Claim, on, q.Namespace, q.Claim)
	}
	p.Phase = "restore"
	if err := m.clear(ctx, q, p.Move); err != nil {
		m.say("  %v", err)
	}
	m.say("%s is %s on node %s", p.Claim, claim.Status.Phase, q.To)
	return nil
}

// NodeOf is the node of a PersistentVolume, "" of one that is on several.
func NodeOf(pv *corev1.PersistentVolume) string {
	if named, labelled := persistentvolume.Nodes(pv, ""); len(named)+len(labelled) == 1 {
		return slices.Concat(named, labelled)[0]
	}
	return ""
}

// Abort has the volume of a claim stay where it is.
func (m *Mover) Abort(ctx context.Context, q Request) error {
	claim, err := m.API.CoreV1().PersistentVolumeClaims(q.Namespace).Get(ctx, q.Claim, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at claim %s/%s: %w", q.Namespace, q.Claim, err)
	}
	var is nodeapi.Move
	if err := m.Controller.Ask(ctx, &is, "move", "abort", claim.Spec.VolumeName); err != nil {
		return err
	}
	m.say("the volume of claim %s/%s stays on node %s: %s", q.Namespace, q.Claim, is.From, is.Message)
	return nil
}

// progress makes an estimate of what is left.
type progress struct {
	from  int64
	since time.Time
}

func (p *progress) line(is nodeapi.Move, now time.Time) string {
	switch is.Phase {
	case "copy":
	case "abort":
		return "it stays where it is: " + is.Message
	default:
		return strings.TrimSuffix(is.Phase+": "+is.Message, ": ")
	}
	if p.since.IsZero() || is.Copied < p.from {
		p.from, p.since = is.Copied, now
	}
	text := fmt.Sprintf("copied %s of about %s", bytesize.Format(is.Copied), bytesize.Format(max(is.Used, is.Copied)))
	took, done := now.Sub(p.since), is.Copied-p.from
	if done > 0 && took > 0 && is.Used > is.Copied {
		left := time.Duration(float64(took) * float64(is.Used-is.Copied) / float64(done))
		text += fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	if is.Message != "" && !strings.HasSuffix(is.Message, "are copied") {
		text += ": " + is.Message
	}
	return text
}
