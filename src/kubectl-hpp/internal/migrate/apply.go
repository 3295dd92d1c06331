package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/pods"
)

// patience is how often something is looked at that others do: pods that end, claims that are bound.
const patience = 150

// Apply migrates what the plan has no problem with, and goes on with what was begun. What one claim fails with keeps
// no other one; a claim that was begun is never left in the middle without a word.
func (m *Migration) Apply(ctx context.Context, rows []Row) error {
	journals, err := m.journals(ctx)
	if err == nil {
		err = m.may(ctx)
	}
	if err != nil {
		return err
	}
	var problems []error
	for _, j := range journals {
		problems = append(problems, m.about(j, m.forward(ctx, j)))
	}
	for _, r := range rows {
		if slices.ContainsFunc(journals, func(j *journal) bool { return j.PV.Name == r.PV }) {
			continue
		}
		if len(r.Problems) > 0 {
			problems = append(problems,
				fmt.Errorf("claim %s is not touched: %s", r.Claim, strings.Join(r.Problems, "; ")))
			continue
		}
		j, err := m.journalOf(ctx, r)
		if err == nil {
			err = m.about(j, m.forward(ctx, j))
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// about says which claim an error is of, and what can be done.
func (m *Migration) about(j *journal, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("claim %s: %w; run the command again to go on, or with --undo to go back", j.Claim, err)
}

// may says which right is missing to write journals and exchange PersistentVolumes.
func (m *Migration) may(ctx context.Context) error {
	return cluster.May(ctx, m.API,
		cluster.Right{Resource: "persistentvolumes", Verbs: []string{"create", "patch", "delete"}},
		cluster.Right{
			Namespace: m.JournalNamespace, Resource: "configmaps", Verbs: []string{"create", "update", "delete"},
		})
}

// mayStop says which right is missing to end the pods of claims, and have these bound again.
func (m *Migration) mayStop(ctx context.Context, namespace string) error {
	return cluster.May(ctx, m.API,
		cluster.Right{Namespace: namespace, Resource: "pods/eviction", Verbs: []string{"create"}},
		cluster.Right{Namespace: namespace, Resource: "persistentvolumeclaims", Verbs: []string{"patch"}})
}

func (m *Migration) journalOf(ctx context.Context, r Row) (*journal, error) {
	pv, err := m.API.CoreV1().PersistentVolumes().Get(ctx, r.PV, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("claim %s: read PersistentVolume %s: %w", r.Claim, r.PV, err)
	}
	ref := pv.Spec.ClaimRef
	if !m.IsOf(pv) || ref == nil {
		return nil, fmt.Errorf("claim %s: PersistentVolume %s has changed; run the command again", r.Claim, r.PV)
	}
	if err := m.mayStop(ctx, ref.Namespace); err != nil {
		return nil, fmt.Errorf("claim %s is not touched: %w", r.Claim, err)
	}
	j := &journal{
		Phase: begun, From: m.From, Driver: m.Driver, Pool: m.Pool, Node: r.Node, Path: r.Path, Enforce: m.Enforce,
		Bytes:    r.Bytes,
		Claim:    types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name},
		ClaimUID: ref.UID, FSGroup: r.FSGroup, PV: *pv,
	}
	return j, m.begin(ctx, j)
}

// forward does all steps that are not done yet.
func (m *Migration) forward(ctx context.Context, j *journal) error {
	switch j.Phase {
	case bound:
		return nil
	case undoing:
		return errors.New("it is on its way back")
	}
	if err := m.own(ctx, j, begun); err != nil {
		return err
	}
	pv, err := m.volume(ctx, j)
	if err != nil {
		return err
	}
	if !m.ours(pv) {
		if err := m.removeVolume(ctx, pv, j.PV.UID); err != nil {
			return err
		}
		if err := m.moveIn(ctx, j); err != nil {
			return err
		}
		if err := m.create(ctx, m.newVolume(j)); err != nil {
			return err
		}
	}
	if err := m.bind(ctx, j, "migrated"); err != nil {
		return err
	}
	if err := m.enter(ctx, j, bound); err != nil {
		return err
	}
	return m.enforce(ctx, j)
}

// evict has the pods of a claim end. Those that come in their place wait for the claim.
func (m *Migration) evict(ctx context.Context, j *journal) error {
	var kept error
	for round := range patience {
		using, err := pods.Using(ctx, m.API, j.Claim.Namespace, j.Claim.Name)
		if err != nil {
			return err
		}
		using = slices.DeleteFunc(using, func(p corev1.Pod) bool { return p.Spec.NodeName == "" })
		if len(using) == 0 {
			return nil
		}
		kept = nil
		for _, p := range using {
			err := pods.Evict(ctx, m.API, p)
			if err != nil && !errors.Is(err, pods.ErrNotYet) {
				return err
			}
			kept = cmp.Or(kept, err)
		}
		if err := m.waitFor(ctx, j, round, fmt.Sprintf("until %d pods of it have ended, as %s", len(using),
			using[0].Name)); err != nil {
			return err
		}
	}
	return cmp.Or(kept, errors.New("its pods do not end: see what keeps them, as a finalizer"))
}

// waitFor waits a moment, and says at once and every few moments what for. Nobody may read it: that ends nothing.
func (m *Migration) waitFor(ctx context.Context, j *journal, round int, what string) error {
	const often = 5
	if round%often == 0 {
		_, _ = fmt.Fprintf(m.Out, "%s: waits %s\n", j.Claim, what)
	}
	return m.Wait(ctx)
}

// moveIn ends the pods, waits until nothing uses the directory, and has the node take it.
func (m *Migration) moveIn(ctx context.Context, j *journal) error {
	if err := m.evict(ctx, j); err != nil {
		return err
	}
	usedAt := ""
	for round := range patience {
		var found nodeapi.Directory
		if err := m.Ask(ctx, &found, "directory", "look", j.Path, "--pool", j.Pool, "--node", j.Node); err != nil {
			return err
		}
		if found.UsedAt == "" { // or it was taken already
			return m.take(ctx, j, found)
		}
		usedAt = found.UsedAt
		what := fmt.Sprintf("until nothing uses %s on node %s: used at %s", j.Path, j.Node, usedAt)
		if err := m.waitFor(ctx, j, round, what); err != nil {
			return err
		}
	}
	return fmt.Errorf("something on node %s still uses %s: used at %s", j.Node, j.Path, usedAt)
}

// take has the node take the directory. What an earlier run began with can get another size and enforcement.
func (m *Migration) take(ctx context.Context, j *journal, found nodeapi.Directory) error {
	if m.Grow {
		j.Bytes = grown(j.Bytes, found.Bytes)
	}
	if m.Enforce != nodeapi.EnforceNow {
		j.Enforce = m.Enforce
	}
	if err := m.still(ctx, j); err != nil {
		return err
	}
	var taken nodeapi.TakenDirectory
	err := m.Ask(ctx, &taken, j.takeArgs()...)
	if err != nil && found.Bytes > j.Bytes {
		err = fmt.Errorf("%w; --grow makes it larger, and --enforce never takes it as it is", err)
	}
	j.Bytes = max(j.Bytes, taken.Bytes)
	return err
}

// bind touches the claim, which a new PersistentVolume alone does not have looked at, until it is bound.
func (m *Migration) bind(ctx context.Context, j *journal, step string) error {
	api := m.API.CoreV1().PersistentVolumeClaims(j.Claim.Namespace)
	claim := nodeapi.Claim{Namespace: j.Claim.Namespace, Name: j.Claim.Name, UID: string(j.ClaimUID)}
	if err := m.exchange().Touch(ctx, api, claim, label, step); err != nil {
		return err
	}
	for range patience {
		claim, err := api.Get(ctx, j.Claim.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the claim: %w", err)
		}
		if claim.UID == j.ClaimUID && claim.Status.Phase == corev1.ClaimBound {
			return nil
		}
		if err := m.Wait(ctx); err != nil {
			return err
		}
	}
	return errors.New("the claim is not bound again yet")
}

// enforce shows how far the node is, which goes on by itself.
func (m *Migration) enforce(ctx context.Context, j *journal) error {
	for said := int64(-1); ; {
		if err := m.still(ctx, j); err != nil {
			return err
		}
		var taken nodeapi.TakenDirectory
		if err := m.Ask(ctx, &taken, j.takeArgs()...); err != nil {
			return fmt.Errorf("it is migrated, and the node does not say how far its enforcement is: %w", err)
		}
		var err error
		switch {
		case taken.Failed != "":
			return fmt.Errorf("no pod gets it before its size is enforced, and that fails: %s", taken.Failed)
		case !taken.Enforcing && taken.Reason != "":
			_, err = fmt.Fprintf(m.Out, "%s: migrated, not enforced: %s\n", j.Claim, taken.Reason)
			return err
		case !taken.Enforcing:
			_, err = fmt.Fprintf(m.Out, "%s: migrated, enforcement %s\n", j.Claim, taken.Enforcement)
			return err
		case taken.Files != said:
			said = taken.Files
			_, err = fmt.Fprintf(m.Out, "%s: bound; %d files are counted, its pods start once all are\n", j.Claim, said)
		}
		if err == nil {
			err = m.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
}
