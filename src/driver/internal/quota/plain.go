package quota

import (
	"context"
	"io/fs"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/disk"
)

// plain is the backend that enforces nothing, on any filesystem.
func plain(reason string) Backend {
	on := func(d disk.FS) limits { return plainLimits{d} }
	return Backend{Name: Plain, Enforcement: None, Reason: reason, on: on}
}

type plainLimits struct{ d disk.FS }

func (l plainLimits) Make(name string, mode fs.FileMode, _ Limit, claim func(ID) error) (ID, error) {
	if err := claim(0); err != nil {
		return 0, err
	}
	return 0, l.d.Mkdir(name, mode)
}

func (plainLimits) Check(string, ID) (State, error) { return State{}, nil }

func (plainLimits) Set(string, ID, Limit) error { return nil }

func (plainLimits) Usage([]ID) (map[ID]Use, error) { return map[ID]Use{}, nil }

func (plainLimits) newID(func(ID) error) (ID, error) { return 0, ErrUnsupported }

func (plainLimits) enforce(context.Context, Tree, func(context.Context) error) error {
	return ErrUnsupported
}
