package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/pods"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/table"
)

// Migration is one run of the plugin.
type Migration struct {
	Options
	API kubernetes.Interface
	// Ask has the controller run a command, and reads its answer.
	Ask func(ctx context.Context, answer any, args ...string) error
	// Driver and TopologyKey are what new PersistentVolumes name; journals are in Namespace.
	Driver, TopologyKey, JournalNamespace string
	// Wait waits a moment.
	Wait func(ctx context.Context) error
	Out  io.Writer

	id string // of this run, once it has changed something
}

func (m *Migration) exchange() persistentvolume.Exchange {
	return persistentvolume.Exchange{Volumes: m.API.CoreV1().PersistentVolumes(), As: "kubectl-hpp"}
}

// Gather plans all volumes that the options select, by claim, and has those that were begun with.
func (m *Migration) Gather(ctx context.Context) (rows []Row, err error) {
	all, err := m.candidates(ctx)
	if err != nil {
		return nil, err
	}
	if rows, err = m.begunWith(ctx); err != nil {
		return nil, err
	}
	for i, c := range all {
		ref := cmp.Or(c.PV.Spec.ClaimRef, &corev1.ObjectReference{})
		if !m.IsOf(&c.PV) || !m.selects(ref.Namespace, ref.Name) ||
			slices.ContainsFunc(rows, func(r Row) bool { return r.PV == c.PV.Name }) {
			continue
		}
		c.Twins = twins(all, all[i])
		if err := m.complete(ctx, &c); err != nil {
			return nil, err
		}
		rows = append(rows, Plan(c, m.Options))
	}
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.Claim+a.PV, b.Claim+b.PV) })
	for _, name := range m.Claims {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Claim == m.Namespace+"/"+name }) {
			return nil, fmt.Errorf("claim %s/%s has no volume of %s, and was not begun with", m.Namespace, name,
				m.From)
		}
	}
	return rows, nil
}

// candidates are all PersistentVolumes with a directory: those of others, too, may have files in common with ours.
func (m *Migration) candidates(ctx context.Context) (all []Candidate, err error) {
	pvs, err := m.API.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	nodes, err := m.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for _, pv := range pvs.Items {
		if pathOf(&pv) != "" {
			all = append(all, Candidate{PV: pv, Node: NodeOf(&pv, nodes.Items)})
		}
	}
	return all, nil
}

// complete adds the claim, the pods and what the node says.
func (m *Migration) complete(ctx context.Context, c *Candidate) error {
	if ref := c.PV.Spec.ClaimRef; ref != nil {
		claim, err := m.API.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("read claim %s/%s: %w", ref.Namespace, ref.Name, err)
		}
		if err == nil && claim.UID == ref.UID {
			c.Claim = claim
			if c.Pods, err = pods.Using(ctx, m.API, ref.Namespace, ref.Name); err != nil {
				return err
			}
		}
	}
	var owners []string
	for _, p := range c.Pods {
		owners = append(owners, ownerOf(p))
	}
	slices.Sort(owners)
	c.Owner = strings.Join(slices.Compact(owners), ", ")
	if c.Node == "" {
		return nil
	}
	err := m.Ask(ctx, &c.Found, "directory", "look", pathOf(&c.PV), "--pool", m.Pool, "--node", c.Node)
	if errors.Is(err, context.Canceled) {
		return err
	}
	if err != nil {
		c.Unseen = err.Error()
		if _, said, does := strings.Cut(c.Unseen, ": node "+c.Node+": "); does {
			c.Unseen = said
		}
	}
	return nil
}

func ownerOf(p corev1.Pod) string {
	if owner := metav1.GetControllerOf(&p); owner != nil {
		return strings.ToLower(owner.Kind) + "/" + owner.Name
	}
	return "pod/" + p.Name
}

// Write writes a plan for a person.
func Write(w io.Writer, rows []Row) error {
	lines := [][]string{{"CLAIM", "NODE", "SIZE", "USED", "FILES", "HOW", "STOPS", "PATH", "PROBLEM"}}
	for _, r := range rows {
		more := ""
		if r.Partial {
			more = "+"
		}
		said := cmp.Or(r.Begun, strings.Join(r.Problems, "; "))
		if said == "" && len(r.Warnings) > 0 {
			said = "warning: " + strings.Join(r.Warnings, "; ")
		}
		lines = append(lines, []string{
			cmp.Or(r.Claim, "-"), cmp.Or(r.Node, "-"), bytesize.Format(r.Bytes), bytesize.Format(r.Used) + more,
			fmt.Sprint(r.Files, more), r.How, cmp.Or(r.Stops, "-"), r.Path,
			cmp.Or(said, "-"),
		})
	}
	if err := table.Lines(w, lines); err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	return nil
}
