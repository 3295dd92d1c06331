package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// label is on every journal.
const label = "hostpathprovisioner.kubevirt.io/migration"

// Phases of a journal.
const (
	begun   = "begun"
	bound   = "bound"
	undoing = "undoing"
)

// errTwo is for a journal that another run has begun at the same time.
var errTwo = errors.New("somebody else has begun with this claim at this moment; run the command again to go on " +
	"with it")

// journal is what is known of one claim from before its first change until --finish.
type journal struct {
	// Run is the run of the program that goes on with it.
	Run                                            string
	Phase, From, Driver, Pool, Node, Path, Enforce string
	Claim                                          types.NamespacedName
	ClaimUID                                       types.UID
	Bytes                                          int64
	FSGroup                                        *int64
	// PV is the old one, as it was.
	PV corev1.PersistentVolume
}

func (j *journal) name() string { return "migrate-" + string(j.ClaimUID) }

func (j *journal) object(namespace string) (*corev1.ConfigMap, error) {
	data, err := json.MarshalIndent(j, "", "  ")
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: j.name(), Labels: map[string]string{label: "true"},
		},
		Data: map[string]string{"journal.json": string(data), "phase": j.Phase, "claim": j.Claim.String()},
	}, err
}

// begin writes a journal before anything is changed.
func (m *Migration) begin(ctx context.Context, j *journal) error {
	j.Run = m.run()
	o, err := j.object(m.JournalNamespace)
	if err == nil {
		_, err = m.API.CoreV1().ConfigMaps(m.JournalNamespace).Create(ctx, o, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		return errTwo
	}
	if err != nil {
		return fmt.Errorf("write the journal of %s: %w", j.Claim, err)
	}
	return nil
}

// run is what tells this run from others.
func (m *Migration) run() string {
	if m.id == "" {
		m.id = string(uuid.NewUUID())
	}
	return m.id
}

// own has this run go on with a journal: whichever other run did so stops before its next change.
func (m *Migration) own(ctx context.Context, j *journal, phase string) error {
	if j.Phase == phase && j.Run == m.run() {
		return nil
	}
	j.Phase, j.Run = phase, m.run()
	return m.write(ctx, j)
}

// still refuses to go on where another run does, or has ended it.
func (m *Migration) still(ctx context.Context, j *journal) error {
	all, err := m.journals(ctx)
	own := func(k *journal) bool { return k.name() == j.name() && k.Run == j.Run }
	if err == nil && !slices.ContainsFunc(all, own) {
		return errors.New("another run of this command goes on with it, or has ended it")
	}
	return err
}

func (m *Migration) enter(ctx context.Context, j *journal, phase string) error {
	if err := m.still(ctx, j); err != nil {
		return err
	}
	j.Phase = phase
	return m.write(ctx, j)
}

func (m *Migration) write(ctx context.Context, j *journal) error {
	o, err := j.object(m.JournalNamespace)
	if err == nil {
		_, err = m.API.CoreV1().ConfigMaps(m.JournalNamespace).Update(ctx, o, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write the journal of %s: %w", j.Claim, err)
	}
	return nil
}

func (m *Migration) forget(ctx context.Context, j *journal) error {
	err := m.API.CoreV1().ConfigMaps(m.JournalNamespace).Delete(ctx, j.name(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the journal of %s: %w", j.Claim, err)
	}
	return nil
}

// journals are those of this driver that the options select, by claim.
func (m *Migration) journals(ctx context.Context) (all []*journal, err error) {
	list, err := m.API.CoreV1().ConfigMaps(m.JournalNamespace).List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nil, fmt.Errorf("list the journals in namespace %s: %w", m.JournalNamespace, err)
	}
	for _, o := range list.Items {
		j := &journal{}
		if err := json.Unmarshal([]byte(o.Data["journal.json"]), j); err != nil || j.name() != o.Name {
			return nil, fmt.Errorf("ConfigMap %s/%s is no journal of this program: %w", o.Namespace, o.Name, err)
		}
		if j.From == m.From && j.Driver == m.Driver && m.selects(j.Claim.Namespace, j.Claim.Name) {
			all = append(all, j)
		}
	}
	slices.SortFunc(all, func(a, b *journal) int { return strings.Compare(a.Claim.String(), b.Claim.String()) })
	return all, nil
}

// named are the journals, or why a claim that the options name has none.
func (m *Migration) named(ctx context.Context) (all []*journal, err error) {
	all, err = m.journals(ctx)
	for _, name := range m.Claims {
		claim := types.NamespacedName{Namespace: m.Namespace, Name: name}
		if err == nil && !slices.ContainsFunc(all, func(j *journal) bool { return j.Claim == claim }) {
			err = fmt.Errorf("claim %s: it was not begun with, or is finished with or undone; leave it out", claim)
		}
	}
	return all, err
}

// begunWith are the rows of claims that were begun with: their PersistentVolumes may be gone. Whoever may not read the
// journals sees the plan without them.
func (m *Migration) begunWith(ctx context.Context) (rows []Row, err error) {
	journals, err := m.journals(ctx)
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	said := map[string]string{
		begun: "begun: --apply goes on, --undo goes back", undoing: "on its way back: --undo goes on",
		bound: "migrated: --undo goes back, --finish ends it",
	}
	for _, j := range journals {
		rows = append(rows, Row{
			Claim: j.Claim.String(), Node: j.Node, Path: j.Path, PV: j.PV.Name, Bytes: j.Bytes, How: Rename,
			Begun: said[j.Phase],
		})
	}
	return rows, err
}

// takeArgs are those of the command that takes the directory.
func (j *journal) takeArgs() []string {
	args := []string{
		"directory", "take", j.PV.Name, "--node", j.Node, "--pool", j.Pool, "--path", j.Path, "--size",
		strconv.FormatInt(j.Bytes, 10), "--claim", j.Claim.String(), "--enforce", j.Enforce,
	}
	if j.FSGroup != nil {
		args = append(args, "--fs-group", strconv.FormatInt(*j.FSGroup, 10))
	}
	return args
}
