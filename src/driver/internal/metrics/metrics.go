// Package metrics shows the pools of this node to Prometheus.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// Pools gives the state of every pool, from memory.
type Pools interface {
	Status() []nodeapi.PoolStatus
}

// Copies gives the copies that are being made file by file: how many, what is copied of them, and about how much there
// is.
type Copies interface {
	Copying() (count int, copied, expected int64)
}

// Collector reads pools and copies whenever it is scraped. Sizes are in bytes.
type Collector struct {
	pools  Pools
	copies Copies
	now    func() time.Time

	build, present, unused, left, info, withOS *prometheus.Desc
	copying, copied, expected                  *prometheus.Desc
	gauges                                     []gauge
}

// gauge is one figure of a pool, known while the pool can be used.
type gauge struct {
	desc  *prometheus.Desc
	value func(s sample) float64
	// configured reports that it means nothing for a pool that left the configuration: alerts are on it.
	configured bool
}

// sample is a pool at a time.
type sample struct {
	nodeapi.PoolStatus
	now time.Time
}

// New returns a collector of pools, copies and the driver's version.
func New(pools Pools, copies Copies, version string, now func() time.Time) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("hpp_"+name, help, labels, nil)
	}
	return &Collector{
		pools: pools, copies: copies, now: now, gauges: gauges(),
		copying: desc("copies", "Number of snapshots, restores and clones that are being made file by file here."),
		copied:  desc("copies_copied_bytes", "Bytes that are copied of those by now."),
		expected: desc("copies_expected_bytes",
			"Bytes that those will have about; of data from another node at most the volume's size."),
		build: prometheus.NewDesc("hpp_build_info", "1, with the version of the driver.", nil,
			prometheus.Labels{"version": version}),
		present: desc("pool_present",
			"1 while the pool can be used on this node, 0 while one that this node has used cannot.", "pool"),
		unused: desc("pool_unused", "1 while this node cannot use the pool and never has used it.", "pool"),
		left: desc("pool_not_configured", "1 while the pool is served although the configuration no longer has it.",
			"pool"),
		info: desc("pool_info", "1, with the pool's backend and how far it enforces sizes.",
			"pool", "backend", "enforcement"),
		// kubevirt's name, whose alerts and dashboards go on working; the label is new.
		withOS: prometheus.NewDesc("kubevirt_hpp_pool_path_shared_with_os",
			"1 when the pool is on the filesystem of the host's / or of the kubelet's directory, else 0.",
			[]string{"pool"}, nil),
	}
}

func gauges() []gauge {
	of := func(name, help string, value func(s sample) float64) gauge {
		return gauge{desc: prometheus.NewDesc("hpp_pool_"+name, help, []string{"pool"}, nil), value: value}
	}
	configured := func(g gauge) gauge { g.configured = true; return g }
	return []gauge{
		of("size_bytes", "Size of the pool's filesystem.", func(s sample) float64 { return float64(s.Size) }),
		of("free_bytes", "Free space on the pool's filesystem.", func(s sample) float64 { return float64(s.Free) }),
		configured(of("available_bytes", "The largest volume that could be created.",
			func(s sample) float64 { return float64(s.Allocatable) })),
		of("reserve_bytes", "Bytes that are never promised to volumes.",
			func(s sample) float64 { return float64(s.Reserve) }),
		of("promised_bytes", "Sum of the sizes of all volumes.", func(s sample) float64 { return float64(s.Promised) }),
		of("volumes", "Number of volumes.", func(s sample) float64 { return float64(s.Volumes) }),
		of("lost_volumes", "Number of volumes whose record is there but whose directory is gone.",
			func(s sample) float64 { return float64(s.Lost) }),
		of("refused_volumes",
			"Number of volumes whose record or directory cannot be used, or whose limit cannot be removed.",
			func(s sample) float64 { return float64(s.Refused) }),
		of("uncounted_volumes",
			"Number of volumes that have an ID and are not held to their size, as after a copy by hand.",
			func(s sample) float64 { return float64(s.Uncounted) }),
		of("untracked_directories",
			"Number of directories in csi/ without a record, which no PersistentVolume named so far.",
			func(s sample) float64 { return float64(s.Untracked) }),
		of("trash_entries", "Number of deleted volumes waiting for removal.",
			func(s sample) float64 { return float64(s.TrashEntries) }),
		configured(of("trash_oldest_seconds",
			"Age of the oldest deleted volume waiting for removal, 0 when there is none.",
			func(s sample) float64 { return age(s.OldestTrash, s.now) })),
		of("trash_overdue_seconds",
			"For how long the deleted volume that is longest overdue should have been removed, 0 when there is none.",
			func(s sample) float64 { return age(s.TrashDue, s.now) }),
		of("seen_seconds", "Age of the pool's figures: how long ago its disk last answered.",
			func(s sample) float64 { return age(s.Seen, s.now) }),
		of("read_only", "1 while the pool's filesystem is read-only.",
			func(s sample) float64 { return oneIf(s.ReadOnly) }),
		of("enforcement_lost", "1 while sizes are no longer enforced because the filesystem's quota was switched off.",
			func(s sample) float64 { return oneIf(s.EnforcementLost) }),
	}
}

// age is 0 where there is no time.
func age(at, now time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at).Seconds())
}

// Describe lists the metrics.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.build, c.present, c.unused, c.left, c.info, c.withOS, c.copying, c.copied, c.expected,
	} {
		descs <- d
	}
	for _, g := range c.gauges {
		descs <- g.desc
	}
}

// Collect reads them.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	send := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	send(c.build, 1)
	count, copied, expected := c.copies.Copying()
	send(c.copying, float64(count))
	send(c.copied, float64(copied))
	send(c.expected, float64(expected))
	now := c.now()
	for _, s := range c.pools.Status() {
		switch {
		case !s.Served() && s.Used:
			send(c.present, 0, s.Name)
			continue
		case !s.Served():
			send(c.unused, 1, s.Name)
			continue
		}
		send(c.present, 1, s.Name)
		send(c.info, 1, s.Name, s.Backend, s.Enforcement)
		if !s.Configured {
			send(c.left, 1, s.Name)
		}
		if s.WithOS != nil && s.Configured {
			send(c.withOS, oneIf(*s.WithOS), s.Name)
		}
		for _, g := range c.gauges {
			if s.Configured || !g.configured {
				send(g.desc, g.value(sample{s, now}), s.Name)
			}
		}
	}
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}
