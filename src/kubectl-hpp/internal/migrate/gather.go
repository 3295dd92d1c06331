package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
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
}

// Gather plans all volumes that the options select, by claim.
func (m *Migration) Gather(ctx context.Context) (rows []Row, err error) {
	all, err := m.candidates(ctx)
	if err != nil {
		return nil, err
	}
	for i, c := range all {
		ref := c.PV.Spec.ClaimRef
		if m.Namespace != "" && (ref == nil || ref.Namespace != m.Namespace) ||
			len(m.Claims) > 0 && (ref == nil || !slices.Contains(m.Claims, ref.Name)) {
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
			return nil, fmt.Errorf("claim %s/%s has no volume of %s", m.Namespace, name, m.From)
		}
	}
	return rows, nil
}

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
		if m.IsOf(&pv) {
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
			if c.Pods, err = m.podsOf(ctx, ref.Namespace, ref.Name); err != nil {
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
	}
	return nil
}

// podsOf are the pods that use a claim and have not ended.
func (m *Migration) podsOf(ctx context.Context, namespace, claim string) (users []corev1.Pod, err error) {
	pods, err := m.API.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", namespace, err)
	}
	for _, p := range pods.Items {
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if !ended && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
		}) {
			users = append(users, p)
		}
	}
	return users, nil
}

func ownerOf(p corev1.Pod) string {
	if owner := metav1.GetControllerOf(&p); owner != nil {
		return strings.ToLower(owner.Kind) + "/" + owner.Name
	}
	return "pod/" + p.Name
}

// Write writes a plan for a person.
func Write(w io.Writer, rows []Row) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "CLAIM\tNODE\tSIZE\tUSED\tFILES\tHOW\tSTOPS\tPROBLEM")
	or := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	for _, r := range rows {
		more := ""
		if r.Partial {
			more = "+"
		}
		said := strings.Join(r.Problems, "; ")
		if said == "" && len(r.Warnings) > 0 {
			said = "warning: " + strings.Join(r.Warnings, "; ")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s%s\t%d%s\t%s\t%s\t%s\n", or(r.Claim), or(r.Node), bytesize.Format(r.Bytes),
			bytesize.Format(r.Used), more, r.Files, more, r.How, or(r.Stops), or(said))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	return nil
}
