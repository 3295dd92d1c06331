package fleet

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of all calls to nodes.
type metrics struct {
	calls *prometheus.CounterVec
	hops  prometheus.Histogram
}

func newMetrics() metrics {
	return metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hpp_controller_calls_total",
			Help: "Calls that the controller made to nodes, by node, method and code.",
		}, []string{"node", "grpc_method", "grpc_code"}),
		hops: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "hpp_controller_hop_seconds",
			Help:    "How long calls to nodes took beside their handling there.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, 1, 10},
		}),
	}
}

// Describe implements prometheus.Collector.
func (f *Fleet) Describe(descriptions chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(f, descriptions)
}

// Collect implements prometheus.Collector.
func (f *Fleet) Collect(metrics chan<- prometheus.Metric) {
	connected := prometheus.NewDesc("hpp_controller_node_connected",
		"Whether a node that has the driver is connected to this controller.", []string{"node"}, nil)
	for _, name := range f.Names() {
		value := 0.0
		if f.Get(name) != nil {
			value = 1
		}
		metrics <- prometheus.MustNewConstMetric(connected, prometheus.GaugeValue, value, name)
	}
}
