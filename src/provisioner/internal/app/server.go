package app

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
)

// checks are those of /healthz and /readyz. Whoever answers at all lives.
func (p *provisioner) checks(directory string) (live health.Check, more []health.Check) {
	live = health.Check{Name: "provisioner", Do: func(context.Context) error { return nil }}
	return live, []health.Check{{Name: "volumes", Do: p.ready(directory)}}
}

// ready fails while this node cannot make volumes.
func (p *provisioner) ready(directory string) func(context.Context) error {
	claims := p.informers.Core().V1().PersistentVolumeClaims().Informer()
	volumes := p.informers.Core().V1().PersistentVolumes().Informer()
	classes := p.informers.Storage().V1().StorageClasses().Informer()
	return func(context.Context) error {
		if !claims.HasSynced() || !volumes.HasSynced() || !classes.HasSynced() {
			return errors.New("the claims, volumes and classes of the cluster are not read yet")
		}
		dir, err := os.OpenRoot(directory)
		if err != nil {
			return fmt.Errorf("open the directory of the volumes: %w", err)
		}
		return dir.Close()
	}
}
