package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// quoting is a test that can repeat its errors, behind all that is collected after them.
type quoting struct {
	*testing.T
	mutex  sync.Mutex
	errors []string
}

func (q *quoting) Error(args ...any) {
	q.Helper()
	q.keep(args)
	q.T.Error(args...)
}

func (q *quoting) Errorf(format string, args ...any) {
	q.Helper()
	q.Error(fmt.Sprintf(format, args...))
}

func (q *quoting) Fatal(args ...any) {
	q.Helper()
	q.keep(args)
	q.T.Fatal(args...)
}

func (q *quoting) Fatalf(format string, args ...any) {
	q.Helper()
	q.Fatal(fmt.Sprintf(format, args...))
}

func (q *quoting) keep(args []any) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.errors = append(q.errors, fmt.Sprint(args...))
}

// said are the errors, cut where they are long.
func (q *quoting) said() string {
	const most = 3000
	q.mutex.Lock()
	defer q.mutex.Unlock()
	text := strings.Join(q.errors, "\n")
	return text[:min(len(text), most)]
}
