package fleet

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// reviewsPerSecond and reviewsAtOnce bound the requests to the API for tokens of who is not authenticated, and
	// beside them for those of nodes that are connected. The burst lets all nodes of most clusters come back at once.
	reviewsPerSecond, reviewsBurst, reviewsAtOnce = 100, 500, 16
	// renewalRetry is after what pause a renewed token is reviewed again. The kubelet renews one 12 minutes before its
	// end.
	renewalRetry = 30 * time.Second
)

// turns bound what is asked of the API: who waits is served by address, each in its turn, so that nobody waits for all
// that another address has begun.
type turns struct {
	limiter *rate.Limiter

	mu      sync.Mutex
	free    int
	order   []string // addresses of those that wait, the next one first
	waiting map[string][]chan struct{}
}

func newTurns() *turns {
	return &turns{
		limiter: rate.NewLimiter(reviewsPerSecond, reviewsBurst), free: reviewsAtOnce,
		waiting: map[string][]chan struct{}{},
	}
}

// takeTurn waits for a turn, which ends with giveTurn.
func (t *turns) takeTurn(ctx context.Context, address string) error {
	t.mu.Lock()
	turn := make(chan struct{})
	if t.free > 0 {
		t.free--
		close(turn)
	} else {
		if len(t.waiting[address]) == 0 {
			t.order = append(t.order, address)
		}
		t.waiting[address] = append(t.waiting[address], turn)
	}
	t.mu.Unlock()
	select {
	case <-turn:
	case <-ctx.Done():
		t.withdraw(address, turn)
		return context.Cause(ctx)
	}
	if err := t.limiter.Wait(ctx); err != nil {
		t.giveTurn()
		return fmt.Errorf("wait for a review of its token: %w", err)
	}
	return nil
}

// giveTurn ends a turn: the next address has it.
func (t *turns) giveTurn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	address := t.order[0]
	t.order = t.order[1:]
	all := t.waiting[address]
	close(all[0])
	if all = all[1:]; len(all) > 0 {
		t.order = append(t.order, address)
		t.waiting[address] = all
		return
	}
	delete(t.waiting, address)
}

// withdraw takes back the wish for a turn, or gives the turn back if it came just now.
func (t *turns) withdraw(address string, turn chan struct{}) {
	t.mu.Lock()
	all := t.waiting[address]
	i := slices.Index(all, turn)
	if i >= 0 {
		if all = slices.Delete(all, i, i+1); len(all) > 0 {
			t.waiting[address] = all
		} else {
			delete(t.waiting, address)
			t.order = slices.DeleteFunc(t.order, func(a string) bool { return a == address })
		}
	}
	t.mu.Unlock()
	if i < 0 {
		t.giveTurn()
	}
}

// review verifies a token in its turn, and gives the time of its end. What already says that it is another's is
// refused without a question to the API.
func (f *Fleet) review(ctx context.Context, t *turns, address, node, token string) (expires time.Time, err error) {
	refused := func(err error) error { return fmt.Errorf("the token of node %.63q: %w", node, err) }
	bound, err := f.Claimed(token)
	if err != nil {
		return expires, refused(err)
	}
	if bound == node {
		if err := t.takeTurn(ctx, address); err != nil {
			return expires, err
		}
		defer t.giveTurn()
		if bound, err = f.Review(ctx, token); err != nil {
			return expires, refused(err)
		}
	}
	if bound != node {
		return expires, fmt.Errorf("node %.63q shows a token of node %.63q", node, bound)
	}
	return expiryOf(token)
}

// DecodeToken reads the claims of a JSON web token (RFC 7519), and verifies nothing.
func DecodeToken(token string, claims any) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errors.New("the token is no JSON web token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(payload, claims)
	}
	if err != nil {
		return fmt.Errorf("the token is no JSON web token: %w", err)
	}
	return nil
}

// expiryOf reads the claim exp of a token that has been verified.
func expiryOf(token string) (time.Time, error) {
	var claims struct {
		Expires int64 `json:"exp"`
	}
	if err := DecodeToken(token, &claims); err != nil {
		return time.Time{}, err
	}
	if claims.Expires == 0 {
		return time.Time{}, errors.New("the token does not say when it ends")
	}
	return time.Unix(claims.Expires, 0), nil
}
