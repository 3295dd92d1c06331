package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller/metrics"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/health"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
)

const (
	// resync is how often what is known is looked at again, should a notification have been lost or an
	// event have expired.
	resync = 15 * time.Minute
	// firstRetry and lastRetry bound the pause before a volume that could not be made or removed is tried
	// again, for ever.
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// noticeDelay is how long a claim may wait for the node in its annotation before the other nodes look
	// whether it exists.
	noticeDelay = 10 * time.Second
)

// parts are what the modes differ in.
type parts struct {
	name      string // of the provisioner, in StorageClasses
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
	backend   controller.Provisioner
	// beside runs beside the library's controller; nil for nothing.
	beside func(context.Context) error
	// live fails when the process has to start anew, and ready while no volume could be made here; nil for never.
	live, ready func() error
	// lease is the object by which several instances agree which of them works; nil where all do.
	lease *lease
	// own are further options of the library.
	own         []func(*controller.ProvisionController) error
	httpAddress string
	log         *slog.Logger
}

// provisioner is everything that runs.
type provisioner struct {
	parts
	process.Group
	controller *controller.ProvisionController
	workers    *sync.WaitGroup // of controller
}

// build puts the provisioner together and takes its address, so that what is wrong is said before anything runs.
func build(ctx context.Context, of parts) (*provisioner, error) {
	measures := metrics.New("controller")
	p := &provisioner{parts: of, workers: &sync.WaitGroup{}}
	p.controller = controller.NewProvisionController(
		ctx, of.client, of.name, of.backend, append(settingsOf(of.informers, measures), of.own...)...,
	)
	p.controller.ControllerWaitGroup(p.workers)
	live, ready := p.checks()
	probes := health.Config{Address: of.httpAddress, Live: live, Ready: ready, Log: of.log}
	if err := addProbes(ctx, &p.Group, probes, collectorsOf(measures)...); err != nil {
		return nil, err
	}
	addInformers(&p.Group, of.informers)
	if of.beside != nil {
		p.Add("beside", of.beside)
	}
	p.Add("volumes", func(ctx context.Context) error {
		return p.runLed(ctx, func(leading context.Context) { p.controller.Run(leading); p.workers.Wait() })
	})
	return p, nil
}

// addProbes adds what answers on --http-address, with the process's metrics and more.
func addProbes(ctx context.Context, to *process.Group, c health.Config, more ...prometheus.Collector) error {
	registry, err := registered(more...)
	if err != nil || c.Address == "" {
		return err
	}
	c.Metrics = registry
	if err := health.Add(ctx, to, "health", c); err != nil {
		return fmt.Errorf("--http-address: %w", err)
	}
	return nil
}

// addInformers adds what reads the cluster; it goes on until those that use it have ended.
func addInformers(to *process.Group, factory informers.SharedInformerFactory) {
	to.Add("informers", func(ctx context.Context) error {
		factory.StartWithContext(ctx)
		<-ctx.Done()
		factory.Shutdown()
		return nil
	})
}

// withoutManagedFields halves what each cached object takes; nobody reads that part here.
func withoutManagedFields(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return object, nil
}

// settingsOf are the library's options.
func settingsOf(
	factory informers.SharedInformerFactory, measures metrics.Metrics,
) []func(*controller.ProvisionController) error {
	return []func(*controller.ProvisionController) error{
		controller.LeaderElection(false), // see led
		controller.ClaimsInformer(factory.Core().V1().PersistentVolumeClaims().Informer()),
		controller.VolumesInformer(factory.Core().V1().PersistentVolumes().Informer()),
		controller.ClassesInformer(factory.Storage().V1().StorageClasses().Informer()),
		controller.MetricsInstance(measures),
		controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)),
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
		// Without this one the library deletes the directory of a volume whose PersistentVolume it could not save; but
		// the API may have saved it and only its answer been lost, and then a pod may be writing there.
		controller.CreateProvisionedPVLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
		),
	}
}

// collectorsOf are the library's metrics.
func collectorsOf(m metrics.Metrics) []prometheus.Collector {
	return []prometheus.Collector{
		m.PersistentVolumeClaimProvisionTotal, m.PersistentVolumeClaimProvisionFailedTotal,
		m.PersistentVolumeClaimProvisionDurationSeconds,
		m.PersistentVolumeDeleteTotal, m.PersistentVolumeDeleteFailedTotal, m.PersistentVolumeDeleteDurationSeconds,
	}
}

// registered gives a registry with the process's metrics, the version, and more.
func registered(more ...prometheus.Collector) (*prometheus.Registry, error) {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hpp_legacy_build_info", Help: "1, with the version of the legacy provisioner.",
	}, []string{"version"})
	build.WithLabelValues(buildinfo.Version()).Set(1)
	registry := prometheus.NewRegistry()
	for _, collector := range append([]prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build,
	}, more...) {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return registry, nil
}

// run provisions until ctx ends or a part of it does, and stops in order: nothing new is begun, what is under way ends,
// and only then do the probes stop answering.
func (p *provisioner) run(ctx context.Context) error {
	err := p.Run(ctx)
	p.log.InfoContext(ctx, "the legacy provisioner has stopped")
	return err
}
