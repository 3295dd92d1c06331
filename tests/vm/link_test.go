package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// link talks to the agent in the VM. Each request has a key; answers come in any order.
type link struct {
	machine *Machine
	answers chan answer
	next    int
}

type answer struct {
	key  int
	ok   bool
	text string
}

// connect boots the VM and waits until its driver uses the pool. found is what the disk had before that.
func connect(t *testing.T, c Config) (l *link, found state) {
	t.Helper()
	l = &link{machine: boot(t, c), answers: make(chan answer, 1000)}
	looked := false
	for line, ok := l.machine.Next(); line != "ready"; line, ok = l.machine.Next() {
		if !ok {
			t.Fatalf("the agent ended before its driver used the pool (does %q run a test?): %v", c.Command,
				l.machine.Wait())
		}
		if text, is := strings.CutPrefix(line, "found "); is {
			found, looked = parseState(t, text), true
		} else {
			t.Log(line)
		}
	}
	if !looked {
		t.Fatal("the agent did not look at the disk before the driver")
	}
	go l.receive()
	return l, found
}

// receive reads answers until the VM ends.
func (l *link) receive() {
	defer close(l.answers)
	for line, ok := l.machine.Next(); ok; line, ok = l.machine.Next() {
		var a answer
		var verdict string
		if n, _ := fmt.Sscan(line, &a.key, &verdict); n != 2 {
			continue // what the test binary says at its end; Wait reports it
		}
		a.ok = verdict == "ok"
		a.text = strings.TrimSpace(strings.SplitN(line, verdict, 2)[1])
		l.answers <- a
	}
}

// ask sends a request and returns its key.
func (l *link) ask(t *testing.T, o operation) int {
	t.Helper()
	l.next++
	if _, err := fmt.Fprintf(l.machine.Input, "%d %s %s %d %s\n", l.next, o.verb, o.id, o.bytes, o.source); err != nil {
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

// look asks for the state.
func (l *link) look(t *testing.T) state {
	t.Helper()
	l.ask(t, operation{verb: "state", id: nothing, source: nothing})
	a := l.wait(t)
	if !a.ok {
		t.Fatalf("look at the disk: %s\n%s", a.text, l.machine.Console())
	}
	return parseState(t, a.text)
}

// settle looks again until nothing is left over: the driver purges in the background, XFS counts for a while what was
// removed, and btrfs frees it at its next commit, which what volumes hold for copies waits for. What is left over for
// good is what the test is to find, so there is an end.
func (l *link) settle(t *testing.T, s state) (last state, left []string) {
	t.Helper()
	const looks = 600
	for range looks {
		if left = s.leftovers(); len(left) == 0 {
			break
		}
		time.Sleep(500 * time.Millisecond)
		s = l.look(t)
	}
	return s, left
}
