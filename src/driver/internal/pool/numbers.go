package pool

import "github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/backend"

// numbers gives volumes their numbers in the filesystem's quota, out of the pool's range. The zero value has none to give. It goes
// round, so that a number comes back as late as possible: what btrfs still removes of an old volume must not count to a new one.
type numbers struct {
	first, next uint32
	taken       map[uint32]struct{}
}

// newNumbers has a range to give, but for what is taken.
func newNumbers(first uint32, taken map[uint32]struct{}) numbers {
	n := numbers{first: first, next: first, taken: taken}
	for number := range taken {
		if n.in(number) {
			n.next = max(n.next, number+1)
		}
	}
	return n
}

func (n *numbers) in(number uint32) bool { return inRange(n.first, number) }

// inRange tells whether a number is in the range that begins with first.
func inRange(first, number uint32) bool { return number >= first && number-first < backend.RangeSize }

func (n *numbers) take() (number uint32, ok bool) {
	if n.first == 0 || len(n.taken) >= backend.RangeSize {
		return 0, false
	}
	for range backend.RangeSize {
		if !n.in(n.next) {
			n.next = n.first
		}
		number = n.next
		n.next++
		if _, taken := n.taken[number]; !taken {
			n.taken[number] = struct{}{}
			return number, true
		}
	}
	return 0, false
}

// hold takes a number that a record says.
func (n *numbers) hold(number uint32) {
	if number != 0 && n.taken != nil {
		n.taken[number] = struct{}{}
	}
}

func (n *numbers) free(number uint32) { delete(n.taken, number) }
