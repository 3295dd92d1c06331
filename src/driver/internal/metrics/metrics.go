// Package metrics shows the pools of this node to Prometheus.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
)

// Pools tells the state of every pool.
type Pools interface {
	Status() []pool.Status
}

// Collector reads the pools whenever it is scraped. Sizes are in bytes.
type Collector struct {
	pools Pools
	now   func() time.Time

	build, present, info, shared *prometheus.Desc
	gauges                       []gauge
	version                      string
}

// gauge is one number of a pool, known while the pool can be used.
type gauge struct {
	desc  *prometheus.Desc
	value func(s pool.Status, now time.Time) float64
}

// New returns a collector of the pools and of the driver's version.
func New(pools Pools, version string, now func() time.Time) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("hpp_"+name, help, labels, nil)
	}
	ofPool := func(name, help string) *prometheus.Desc { return desc("pool_"+name, help, "pool") }
	return &Collector{
		pools: pools, now: now, version: version,
		build:   desc("build_info", "1, with the version of the driver.", "version"),
		present: ofPool("present", "1 while the pool can be used on this node, 0 while it is absent."),
		info:    desc("pool_info", "1, with the pool's backend and how far it enforces sizes.", "pool", "backend", "enforcement"),
		// kubevirt's name, whose alerts and dashboards go on working; the label is new.
		shared: prometheus.NewDesc("kubevirt_hpp_pool_path_shared_with_os",
			"1 when the pool is on the filesystem of the host's / or of the kubelet's directory, else 0.", []string{"pool"}, nil),
		gauges: []gauge{
			{ofPool("size_bytes", "Size of the pool's filesystem."), func(s pool.Status, _ time.Time) float64 { return float64(s.Size) }},
			{ofPool("free_bytes", "Free space on the pool's filesystem."), func(s pool.Status, _ time.Time) float64 { return float64(s.Free) }},
			{ofPool("available_bytes", "The largest volume that could be created now."), func(s pool.Status, _ time.Time) float64 { return float64(s.Available) }},
			{ofPool("promised_bytes", "Sum of the sizes of all volumes."), func(s pool.Status, _ time.Time) float64 { return float64(s.Promised) }},
			{ofPool("volumes", "Number of volumes."), func(s pool.Status, _ time.Time) float64 { return float64(s.Volumes) }},
			{ofPool("trash_entries", "Number of deleted volumes waiting for removal."), func(s pool.Status, _ time.Time) float64 { return float64(s.TrashEntries) }},
			{ofPool("trash_oldest_seconds", "Age of the oldest deleted volume waiting for removal, 0 when there is none."), oldest},
			{ofPool("enforcement_lost", "1 while sizes are no longer enforced because the filesystem's quota was switched off."), func(s pool.Status, _ time.Time) float64 { return oneIf(s.EnforcementLost) }},
			{ofPool("counts_wrong", "1 while the filesystem's quota has lost count or is counted again: sizes may not be enforced."), func(s pool.Status, _ time.Time) float64 { return oneIf(s.CountsWrong) }},
			{ofPool("orphans", "Number of volumes that no PersistentVolume has named for an hour."), func(s pool.Status, _ time.Time) float64 { return float64(s.Orphans) }},
			{ofPool("lost_volumes", "Number of volumes whose record is there but whose directory is gone."), func(s pool.Status, _ time.Time) float64 { return float64(s.Lost) }},
			{ofPool("refused_volumes", "Number of volumes whose record or directory cannot be used, or whose limit cannot be held."), func(s pool.Status, _ time.Time) float64 { return float64(s.Refused) }},
		},
	}
}

func oldest(s pool.Status, now time.Time) float64 {
	if s.OldestTrash.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.OldestTrash).Seconds())
}

// Describe lists the metrics.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.build
	descs <- c.present
	descs <- c.info
	descs <- c.shared
	for _, g := range c.gauges {
		descs <- g.desc
	}
}

// Collect reads them.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	send := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	send(c.build, 1, c.version)
	now := c.now()
	for _, s := range c.pools.Status() {
		if !s.Present {
			send(c.present, 0, s.Name)
			continue
		}
		send(c.present, 1, s.Name)
		send(c.info, 1, s.Name, s.Backend, s.Enforcement)
		if s.SharedWithOS != nil {
			send(c.shared, oneIf(*s.SharedWithOS), s.Name)
		}
		for _, g := range c.gauges {
			send(g.desc, g.value(s, now), s.Name)
		}
	}
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}
