package memfs

import (
	"fmt"
	"io/fs"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/poolfs"
)

// Account implements poolfs.Quotas.
func (f *dir) Account(number uint32) (a poolfs.Account, err error) {
	err = f.within("account", ".", func(_ *node, _, path string) error {
		a = f.account(number)
		return f.mayLimit(path)
	})
	return a, err
}

func (f *dir) account(number uint32) poolfs.Account {
	a := f.disk.shown(f.node.on)[number]
	a.Number, a.Limit = number, f.node.on.limits.now[number]
	return a
}

// InUse implements poolfs.Quotas.
func (f *dir) InUse(number uint32) (is bool, err error) {
	err = f.within("account", ".", func(_ *node, _, path string) error {
		is = f.used(number)
		return f.mayLimit(path)
	})
	return is, err
}

// used tells whether anything counts to an account, whatever the kernel shows.
func (f *dir) used(number uint32) bool { return f.disk.usage(f.node.on).by[number].InodesUsed > 0 }

// SetLimit implements poolfs.Quotas.
func (f *dir) SetLimit(number uint32, l poolfs.Limit) error {
	return f.within("limit", ".", func(_ *node, _, path string) error {
		if err := f.mayLimit(path); err != nil {
			return err
		}
		if err := f.disk.step("limit", fmt.Sprintf("%s %d to %d", path, number, l.Bytes), f.node.on); err != nil {
			return err
		}
		if l == (poolfs.Limit{}) && f.node.on.quota == poolfs.QuotaProject { // which has no accounts without
			delete(f.node.on.limits.now, number)
			return nil
		}
		f.node.on.limits.set(number, l)
		return nil
	})
}

// RemoveAccount implements poolfs.Quotas.
func (f *dir) RemoveAccount(number uint32) error {
	return f.within("unlimit", ".", func(_ *node, _, path string) error {
		if err := f.mayLimit(path); err != nil {
			return err
		}
		if _, ok := f.node.on.limits.now[number]; !ok {
			return nil
		}
		if f.used(number) {
			return &fs.PathError{Op: "unlimit", Path: path, Err: syscall.EBUSY}
		}
		if err := f.disk.step("unlimit", fmt.Sprintf("%s %d", path, number), f.node.on); err != nil {
			return err
		}
		delete(f.node.on.limits.now, number)
		return nil
	})
}

// Accounts implements poolfs.Quotas.
func (f *dir) Accounts(first, last uint32) (all []poolfs.Account, err error) {
	err = f.within("accounts", ".", func(_ *node, _, path string) error {
		used := f.disk.shown(f.node.on)
		for number, limit := range f.node.on.limits.now {
			if number >= first && number <= last {
				a := used[number]
				a.Number, a.Limit = number, limit
				all = append(all, a)
			}
		}
		return f.mayLimit(path)
	})
	return all, err
}
