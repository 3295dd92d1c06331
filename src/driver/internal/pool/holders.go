package pool

import "slices"

// holders are, by number, the volumes that have it: by their record, while they are made, or because their data is in the trash. There is
// more than one where somebody copied a volume by hand, record and all; the first that has a record is the one whose number it is.
type holders map[uint32][]string

func (h holders) add(number uint32, id string) {
	if number != 0 && !slices.Contains(h[number], id) {
		h[number] = append(h[number], id)
	}
}

func (h holders) remove(number uint32, id string) {
	left := slices.DeleteFunc(h[number], func(other string) bool { return other == id })
	if len(left) == 0 {
		delete(h, number)
		return
	}
	h[number] = left
}

// Owner is the volume whose number it is, "" where no record has it.
func (l *Ledger) Owner(number uint32) (id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owner(number)
}

// owner needs the lock.
func (l *Ledger) owner(number uint32) string {
	for _, id := range l.holders[number] {
		if l.records[id].ProjectID == number {
			return id
		}
	}
	return ""
}

// Shared tells whether something else than this volume has its number: another one, one in the trash, or what is not the pool's.
func (l *Ledger) Shared(number uint32, id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.disclaimed[number] || slices.ContainsFunc(l.holders[number], func(other string) bool { return other != id })
}

// Gives tells whether a number is in the range that the pool gives its volumes numbers of.
func (l *Ledger) Gives(number uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first != 0 && inRange(l.first, number)
}

// Disclaim notes that what counts to a number is none of the pool's volumes.
func (l *Ledger) Disclaim(number uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.disclaimed[number] = true
}

// Disclaimed tells whether that is so, as far as is known.
func (l *Ledger) Disclaimed(number uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.disclaimed[number]
}

// expect says which range the pool has before its numbers are in order.
func (l *Ledger) expect(first uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = first
}

// Free ends a volume's hold on its number, which can be given again once nobody else has it.
func (l *Ledger) Free(number uint32, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holders.remove(number, id)
	if len(l.holders[number]) == 0 {
		l.numbers.free(number)
	}
}

// addTrash enters what numbers the volumes in the trash have, by number.
func (l *Ledger) addTrash(ids map[uint32][]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for number, all := range ids {
		for _, id := range all {
			l.holders.add(number, id)
		}
	}
}

// addNumbers adds all numbers that somebody has.
func (l *Ledger) addNumbers(to map[uint32]struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for number := range l.holders {
		to[number] = struct{}{}
	}
}

// firstNumber is the first of the pool's range, 0 where it has none.
func (l *Ledger) firstNumber() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.numbers.first
}
