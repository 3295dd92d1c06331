// Package progress shows a person what is being done, how far it is, and how
// long it took. Lines are plain text, so that a CI log reads well too.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// heartbeat is how often a long step says that it is still alive.
const heartbeat = 20 * time.Second

// Printer numbers the steps of one command. It is safe for concurrent use.
type Printer struct {
	mu      sync.Mutex
	out     io.Writer
	started time.Time
	total   int
	next    int
}

// New returns a printer that expects total steps.
func New(out io.Writer, total int) *Printer {
	return &Printer{out: out, total: total, started: time.Now()}
}

// Expect adds steps to the total once it is known that they are needed.
func (p *Printer) Expect(more int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total += more
}

// Note prints a line that belongs to no step.
func (p *Printer) Note(format string, args ...any) {
	p.printf(format+"\n", args...)
}

// Elapsed is the time since the printer was made.
func (p *Printer) Elapsed() time.Duration { return time.Since(p.started) }

// Step runs do and prints a line before and after it. usual is how long it
// takes on two cores, zero when that is not worth saying. do reports what it
// is at; the newest report is printed with each heartbeat.
func (p *Printer) Step(what string, usual time.Duration, do func(report func(string)) error) error {
	mark := p.begin(what, usual)
	var (
		mu     sync.Mutex
		latest string
	)
	report := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		latest = s
	}
	started := time.Now()
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				mu.Lock()
				text := latest
				mu.Unlock()
				p.printf("%s   … %s %s\n", mark, short(time.Since(started)), text)
			}
		}
	})
	err := do(report)
	close(done)
	watcher.Wait()
	if err != nil {
		p.printf("%s   failed after %s\n", mark, short(time.Since(started)))
		return err
	}
	p.printf("%s   done in %s\n", mark, short(time.Since(started)))
	return nil
}

func (p *Printer) begin(what string, usual time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	mark := fmt.Sprintf("[%2d/%d]", p.next, max(p.total, p.next))
	hint := ""
	if usual > 0 {
		hint = fmt.Sprintf(" (about %s on two cores)", short(usual))
	}
	p.write("%s %s%s\n", mark, what, hint)
	return mark
}

func (p *Printer) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(format, args...)
}

// write drops the error: a closed terminal is no reason to stop working.
func (p *Printer) write(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, format, args...)
}

// short prints a duration the way people say it: 4s, 2m05s.
func short(d time.Duration) string {
	d = d.Round(time.Second)
	if d < time.Minute {
		return fmt.Sprintf("%ds", int(d.Seconds()))
	}
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}
