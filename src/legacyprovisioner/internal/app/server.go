package app

import (
	"context"
	"errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
)

// checks are those of /healthz and /readyz.
func (p *provisioner) checks() (live health.Check, more []health.Check) {
	live = health.Check{Name: "provisioner", Do: func(context.Context) error { return runCheck(p.live) }}
	return live, []health.Check{{Name: "volumes", Do: p.isReady}}
}

// isReady fails while volumes cannot be made here.
func (p *provisioner) isReady(context.Context) error {
	claims := p.informers.Core().V1().PersistentVolumeClaims().Informer()
	volumes := p.informers.Core().V1().PersistentVolumes().Informer()
	classes := p.informers.Storage().V1().StorageClasses().Informer()
	if !claims.HasSynced() || !volumes.HasSynced() || !classes.HasSynced() {
		return errors.New("the claims, volumes and classes of the cluster are not read yet")
	}
	return runCheck(p.ready)
}

func runCheck(check func() error) error {
	if check == nil {
		return nil
	}
	return check()
}
