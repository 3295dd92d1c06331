package logging_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// What is logged every minute is the same place and the same words; numbers do not count.
func TestTroubles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var troubles logging.Troubles
		for _, c := range []struct {
			after       time.Duration
			where, what string
			fresh       bool
		}{
			{0, "a", "port 1234 is closed", true},
			{time.Second, "a", "port 99 is closed", false},
			{0, "b", "port 1234 is closed", true},
			{0, "a", "no route", true},
			{58 * time.Second, "a", "port 1 is closed", false},
			{time.Second, "a", "port 1 is closed", true},
			{0, "b", "port 1234 is closed", false},
			{0, "a", "port 1 is closed", false},
		} {
			time.Sleep(c.after)
			if fresh := troubles.Fresh(c.where, errors.New(c.what)); fresh != c.fresh {
				t.Errorf("%s after %s: %q is fresh: %t", c.where, c.after, c.what, fresh)
			}
		}
	})
}
