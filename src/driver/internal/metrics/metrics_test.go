package metrics_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/metrics"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

type pools []nodeapi.PoolStatus

func (p pools) Status() []nodeapi.PoolStatus { return p }

type copies struct{}

func (copies) Copying() (count int, copied, expected int64) { return 2, 20, 50 }

// gather is every sample as name{labels} value.
func gather(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var samples []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			samples = append(samples, fmt.Sprintf("%s{%s} %g", family.GetName(), strings.Join(labels, ","),
				metric.GetGauge().GetValue()))
		}
	}
	slices.Sort(samples)
	return samples
}

func TestCollector(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	registry := prometheus.NewPedanticRegistry()
	yes, no := true, false
	registry.MustRegister(metrics.New(pools{
		{
			Name: "local", Configured: true, State: nodeapi.StatePresent, Used: true,
			WithOS: &yes, Backend: "plain", Enforcement: "none", Size: 100, Free: 60,
			Allocatable: 50, Promised: 30, Volumes: 3, TrashEntries: 2, OldestTrash: now.Add(-time.Minute),
			TrashDue: now.Add(-3 * time.Second), Reserve: 11,
			Lost: 4, Refused: 5, Uncounted: 6, Untracked: 8, EnforcementLost: true, ReadOnly: true,
			Seen: now.Add(-2 * time.Second),
		},
		{
			Name: "own", Configured: true, State: nodeapi.StatePresent, Used: true, WithOS: &no, Backend: "plain",
			Enforcement: "none",
		},
		// No alert is to come of one that left the configuration.
		{
			Name: "left", State: nodeapi.StateNotConfigured, Used: true, WithOS: &yes, OldestTrash: now.Add(-time.Hour),
			Volumes: 2,
		},
		{Name: "slow", Used: true, Size: 7, Volumes: 9, WithOS: &yes}, // absent: its figures are of no use
		{Name: "tape", Selected: true, Configured: true},              // never was there
	}, copies{}, "0.1.0", func() time.Time { return now }))
	want := []string{
		"hpp_build_info{version=0.1.0} 1",
		"hpp_copies_copied_bytes{} 20",
		"hpp_copies_expected_bytes{} 50",
		"hpp_copies{} 2",
		"hpp_pool_available_bytes{pool=local} 50",
		"hpp_pool_available_bytes{pool=own} 0",
		"hpp_pool_enforcement_lost{pool=left} 0",
		"hpp_pool_enforcement_lost{pool=local} 1",
		"hpp_pool_enforcement_lost{pool=own} 0",
		"hpp_pool_free_bytes{pool=left} 0",
		"hpp_pool_free_bytes{pool=local} 60",
		"hpp_pool_free_bytes{pool=own} 0",
		"hpp_pool_info{backend=,enforcement=,pool=left} 1",
		"hpp_pool_info{backend=plain,enforcement=none,pool=local} 1",
		"hpp_pool_info{backend=plain,enforcement=none,pool=own} 1",
		"hpp_pool_lost_volumes{pool=left} 0",
		"hpp_pool_lost_volumes{pool=local} 4",
		"hpp_pool_lost_volumes{pool=own} 0",
		"hpp_pool_not_configured{pool=left} 1",
		"hpp_pool_present{pool=left} 1",
		"hpp_pool_present{pool=local} 1",
		"hpp_pool_present{pool=own} 1",
		"hpp_pool_present{pool=slow} 0",
		"hpp_pool_promised_bytes{pool=left} 0",
		"hpp_pool_promised_bytes{pool=local} 30",
		"hpp_pool_promised_bytes{pool=own} 0",
		"hpp_pool_read_only{pool=left} 0",
		"hpp_pool_read_only{pool=local} 1",
		"hpp_pool_read_only{pool=own} 0",
		"hpp_pool_refused_volumes{pool=left} 0",
		"hpp_pool_refused_volumes{pool=local} 5",
		"hpp_pool_refused_volumes{pool=own} 0",
		"hpp_pool_reserve_bytes{pool=left} 0",
		"hpp_pool_reserve_bytes{pool=local} 11",
		"hpp_pool_reserve_bytes{pool=own} 0",
		"hpp_pool_seen_seconds{pool=left} 0",
		"hpp_pool_seen_seconds{pool=local} 2",
		"hpp_pool_seen_seconds{pool=own} 0",
		"hpp_pool_size_bytes{pool=left} 0",
		"hpp_pool_size_bytes{pool=local} 100",
		"hpp_pool_size_bytes{pool=own} 0",
		"hpp_pool_trash_entries{pool=left} 0",
		"hpp_pool_trash_entries{pool=local} 2",
		"hpp_pool_trash_entries{pool=own} 0",
		"hpp_pool_trash_oldest_seconds{pool=local} 60",
		"hpp_pool_trash_oldest_seconds{pool=own} 0",
		"hpp_pool_trash_overdue_seconds{pool=left} 0",
		"hpp_pool_trash_overdue_seconds{pool=local} 3",
		"hpp_pool_trash_overdue_seconds{pool=own} 0",
		"hpp_pool_uncounted_volumes{pool=left} 0",
		"hpp_pool_uncounted_volumes{pool=local} 6",
		"hpp_pool_uncounted_volumes{pool=own} 0",
		"hpp_pool_untracked_directories{pool=left} 0",
		"hpp_pool_untracked_directories{pool=local} 8",
		"hpp_pool_untracked_directories{pool=own} 0",
		"hpp_pool_unused{pool=tape} 1",
		"hpp_pool_volumes{pool=left} 2",
		"hpp_pool_volumes{pool=local} 3",
		"hpp_pool_volumes{pool=own} 0",
		"kubevirt_hpp_pool_path_shared_with_os{pool=local} 1",
		"kubevirt_hpp_pool_path_shared_with_os{pool=own} 0",
	}
	if diff := cmp.Diff(want, gather(t, registry)); diff != "" {
		t.Error(diff)
	}
}
