package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// link talks to the agent in the VM. Requests are numbered; answers come in any order.
type link struct {
	machine *Machine
	answers chan answer
	next    int
}

type answer struct {
	number int
	ok     bool
	text   string
}

// connect boots the VM and waits until its driver serves.
func connect(t *testing.T, c Config) *link {
	t.Helper()
	l := &link{machine: boot(t, c), answers: make(chan answer, 1000)}
	for line, ok := l.machine.Next(); line != "ready"; line, ok = l.machine.Next() {
		if !ok {
			t.Fatalf("the agent ended before its driver served (is there still a test that %q runs?): %v", c.Command, l.machine.Wait())
		}
		t.Log(line)
	}
	go func() {
		defer close(l.answers)
		for line, ok := l.machine.Next(); ok; line, ok = l.machine.Next() {
			var a answer
			var verdict string
			if n, _ := fmt.Sscan(line, &a.number, &verdict); n != 2 {
				continue // what the test binary says at its end; Wait tells it
			}
			a.ok = verdict == "ok"
			a.text = strings.TrimSpace(strings.SplitN(line, verdict, 2)[1])
			l.answers <- a
		}
	}()
	return l
}

// ask sends a request and returns its number.
func (l *link) ask(t *testing.T, verb, id string, bytes int64) int {
	t.Helper()
	l.next++
	if _, err := fmt.Fprintf(l.machine.Input, "%d %s %s %d\n", l.next, verb, id, bytes); err != nil {
		t.Fatalf("%v\n%s", err, l.machine.Console())
	}
	return l.next
}

// wait returns the next answer.
func (l *link) wait(t *testing.T) answer {
	t.Helper()
	a, ok := <-l.answers
	if !ok {
		t.Fatal(l.machine.Wait())
	}
	return a
}

// settled asks for the state until the driver has nothing left to clean up. It purges in the background, and the kernel frees
// what was purged in its own time; something that is never freed is what the test is to find, so there is an end.
func (l *link) settled(t *testing.T, w *world) state {
	t.Helper()
	const tries = 120
	var a answer
	var s state
	for range tries {
		l.ask(t, "state", "-", 0)
		if a = l.wait(t); a.ok {
			s = parseState(t, a.text)
			if len(w.compare(s)) == 0 {
				return s
			}
		}
		time.Sleep(500 * time.Millisecond)
	}
	if !a.ok { // at first the driver has not made its folders
		t.Fatalf("look at the disk: %s\n%s", a.text, l.machine.Console())
	}
	return s
}
