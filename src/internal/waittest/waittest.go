// Package waittest waits in tests for what another goroutine or process brings about.
package waittest

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Until waits for a condition; only one that never comes fails the test.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	const enough = 2 * time.Minute
	err := wait.PollUntilContextTimeout(context.WithoutCancel(t.Context()), 2*time.Millisecond, enough, true,
		func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatalf("waited for %s until %s", enough, what)
	}
}
