package app

import (
	"fmt"
	"log/slog"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/definitions"
)

// keepDefinition connects before there is a manager: one cannot start without the resource's definition.
func keepDefinition(config *rest.Config, log *slog.Logger) (*definitions.Keeper, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return definitions.New(direct, buildinfo.Version(), log)
}
