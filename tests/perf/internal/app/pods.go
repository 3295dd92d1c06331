package app

import (
	"context"
	"errors"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/burst"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/pods"
)

// pods measures single pods, beside those of local-path if it is to be measured.
func (s *session) pods(ctx context.Context) error {
	others := slices.DeleteFunc(slices.Clone(s.systems), func(name string) bool { return name == burst.Ceiling })
	return s.onCluster(ctx, others, s.measurePods)
}

func (s *session) measurePods(ctx context.Context, in installed) error {
	workers, err := in.cluster.Workers(ctx)
	if err != nil {
		return err
	}
	if len(workers) == 0 {
		return errors.New("the cluster has no worker: its control plane's power would be cut")
	}
	node := workers[0]
	outcome, err := pods.Run(ctx, pods.Options{
		Client: in.client, Node: node, Systems: in.systems, Image: podImage, Rounds: s.starts, Log: s.log,
		Cut: func(ctx context.Context) error {
			return errors.Join(in.cluster.KillNode(ctx, node), in.cluster.RestartNode(ctx, node))
		},
		Quiet: func(ctx context.Context, what string) error { return s.quiet(ctx, what, idleCluster) },
	})
	if err != nil {
		return err
	}
	s.report.Sections = append(s.report.Sections, outcome.Section())
	return nil
}
