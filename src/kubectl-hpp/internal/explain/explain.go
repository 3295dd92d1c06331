// Package explain says why a claim, a pod, a PersistentVolume or a node is as it is, and what to type next. It is pure:
// an ordered chain of cases over what was read, of which the most useful comes first.
package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
)

// Facts are what was read. What could not be read is empty, and State.Missing says so.
type Facts struct {
	cluster.State
	Reported   nodeapi.Status         // the nodes and their pools, as the controller sees them
	Listed     []nodeapi.VolumeStatus // the volumes that it lists
	DriverPods []corev1.Pod           // those of the nodes
	Events     []corev1.Event         // about what is explained, and about others
	Away       string                 // why there is no controller that answers; "" where the user may not ask it
	Now        time.Time
}

// Answer is what is known of something.
type Answer struct {
	Reason  string // one word for each case
	Wrong   bool   // somebody should do something
	About   string // what it is about, where that is not what was asked for
	Message string // one sentence
	Rows    [][2]string
	Next    []string // what to do, with what to type
	Also    []Answer
}

// Trouble reports whether something is wrong.
func (a Answer) Trouble() bool { return a.Wrong || slices.ContainsFunc(a.Also, Answer.Trouble) }

// Write writes the answer for a person. Some of it is what others have written, so that nothing of it may be what a
// terminal obeys.
func (a Answer) Write(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	a.write(table, "")
	for _, also := range a.Also {
		also.write(table, "\n")
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the explanation: %w", err)
	}
	return nil
}

func (a Answer) write(table *tabwriter.Writer, before string) {
	about := a.About
	if about != "" {
		about += ": "
	}
	fmt.Fprintf(table, "%s%s\n", before, abridge.Printable(about+a.Message))
	for _, row := range a.Rows {
		fmt.Fprintf(table, "  %s\t%s\n", abridge.Printable(row[0]), abridge.Printable(row[1]))
	}
	if len(a.Next) > 0 {
		fmt.Fprintln(table, "What to do:")
	}
	for _, next := range a.Next {
		fmt.Fprintf(table, "  %s\n", abridge.Printable(next))
	}
}

// rule is one case of a chain.
type rule[T any] func(T) (answer Answer, applies bool)

// first gives the answer of the first case that applies.
func first[T any](subject T, rules ...rule[T]) (Answer, bool) {
	for _, r := range rules {
		if answer, applies := r(subject); applies {
			return answer, true
		}
	}
	return Answer{}, false
}

// all gives the answers of all cases that apply, the first with the others in it.
func all[T any](subject T, rules ...rule[T]) (Answer, bool) {
	var answers []Answer
	for _, r := range rules {
		if answer, applies := r(subject); applies {
			answers = append(answers, answer)
		}
	}
	if len(answers) == 0 {
		return Answer{}, false
	}
	answers[0].Also = append(answers[0].Also, answers[1:]...)
	return answers[0], true
}

// trouble is an answer of which somebody should do something.
func trouble(reason, message string, next ...string) (Answer, bool) {
	return Answer{Reason: reason, Wrong: true, Message: message, Next: next}, true
}

// normal is an answer about what is as it should be.
func normal(reason, message string, next ...string) (Answer, bool) {
	return Answer{Reason: reason, Message: message, Next: next}, true
}

func no() (Answer, bool) { return Answer{}, false }

// events are those about an object, the newest last. Those about what had its name before have another uid.
func (f Facts) events(kind string, object metaObject) (about []corev1.Event) {
	for _, e := range f.Events {
		of := e.InvolvedObject
		if of.Kind == kind && of.Name == object.GetName() && of.Namespace == object.GetNamespace() &&
			(of.UID == "" || of.UID == object.GetUID() || kind == "Node") { // the kubelet writes a node's name there
			about = append(about, e)
		}
	}
	slices.SortStableFunc(about, func(a, b corev1.Event) int { return cluster.Last(a).Compare(cluster.Last(b)) })
	return about
}

// lastOf is the message of the newest event with one of these reasons, "" without one.
func lastOf(events []corev1.Event, reasons ...string) (message string) {
	for _, e := range events {
		if slices.Contains(reasons, e.Reason) {
			message = strings.TrimSpace(e.Message)
		}
	}
	return message
}

// quoted are the newest events as rows, for where nothing is known.
func quoted(events []corev1.Event) (rows [][2]string) {
	const most = 5
	for _, e := range events[max(0, len(events)-most):] {
		rows = append(rows, [2]string{e.Reason, strings.TrimSpace(e.Message)})
	}
	return rows
}

// unknown is what is said where no case applies.
func (f Facts) unknown(what string, events []corev1.Event) Answer {
	answer := Answer{Reason: "Unknown", Message: what + "; nothing wrong is known. Its events:", Rows: quoted(events)}
	if len(events) == 0 {
		answer.Message = what + "; nothing wrong is known, and there are no events of it."
	}
	for _, right := range f.Missing {
		answer.Rows = append(answer.Rows, [2]string{"not read", right})
	}
	return answer
}
