// Package say is how something is explained: answers, and ordered chains of cases of which the most useful comes first.
package say

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
)

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

// Rule is one case of a chain.
type Rule[T any] func(T) (answer Answer, applies bool)

// First gives the answer of the first case that applies.
func First[T any](subject T, rules ...Rule[T]) (Answer, bool) {
	for _, r := range rules {
		if answer, applies := r(subject); applies {
			return answer, true
		}
	}
	return Answer{}, false
}

// Each gives the answers of all cases that apply.
func Each[T any](subject T, rules ...Rule[T]) (answers []Answer) {
	for _, r := range rules {
		if answer, applies := r(subject); applies {
			answers = append(answers, answer)
		}
	}
	return answers
}

// Join makes the first of answers one with the others in it, if there are any.
func Join(answers []Answer) (joined Answer, found bool) {
	if len(answers) == 0 {
		return joined, false
	}
	joined = answers[0]
	joined.Also = append(joined.Also, answers[1:]...)
	return joined, true
}

// Wrong is an answer of which somebody should do something.
func Wrong(reason, message string, next ...string) (Answer, bool) {
	return Answer{Reason: reason, Wrong: true, Message: message, Next: next}, true
}

// Fine is an answer about what is as it should be.
func Fine(reason, message string, next ...string) (Answer, bool) {
	return Answer{Reason: reason, Message: message, Next: next}, true
}

// No is that a case does not apply.
func No() (Answer, bool) { return Answer{}, false }
