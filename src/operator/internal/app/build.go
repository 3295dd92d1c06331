package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/hostpath-provisioner/hostpath-provisioner/charts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/certificates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/controller"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/definitions"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/platform"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/predecessor"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/render"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/tlspolicy"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/webhook"
)

const (
	// component is the operator's name as leader, and in events.
	component = "hostpath-provisioner-operator"
	// stopGrace stays below a pod's 30 s of grace.
	stopGrace = 15 * time.Second
)

// operator is what is being put together.
type operator struct {
	options
	log    *slog.Logger
	mgr    ctrl.Manager
	policy *tlspolicy.Source
	keeper *certificates.Keeper
	// definition is the resource's.
	definition *definitions.Keeper
	// changed wakes the controller when the cluster serves other APIs, or has another TLS policy, than before.
	changed  chan event.GenericEvent
	platform *platform.Platform
}

// build puts the operator together; nothing runs before the manager starts.
func build(
	ctx context.Context, o options, config *rest.Config, definition *definitions.Keeper, log *slog.Logger,
) (ctrl.Manager, error) {
	policy, err := tlspolicy.New(o.overrides())
	if err != nil {
		return nil, err
	}
	op := &operator{
		options: o, log: log, policy: policy, definition: definition, changed: make(chan event.GenericEvent, 1),
	}
	for _, step := range []func() error{
		func() error { return op.buildManager(config) },
		op.buildServers,
		func() error { return op.buildPlatform(ctx) },
		op.buildController,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return op.mgr, nil
}

func (op *operator) buildManager(config *rest.Config) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	limits, err := op.cacheOptions()
	if err != nil {
		return err
	}
	grace := stopGrace
	op.mgr, err = ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Logger: logr.FromSlogHandler(op.log.Handler()),
		Cache:  limits,
		Metrics: metricsserver.Options{
			BindAddress: op.metricsAddress, SecureServing: true, TLSOpts: []func(*tls.Config){op.secure},
		},
		WebhookServer: ctrlwebhook.NewServer(
			ctrlwebhook.Options{Port: op.webhookPort, TLSOpts: []func(*tls.Config){op.secure}}),
		HealthProbeBindAddress:        op.healthAddress,
		LivenessEndpointName:          "/livez",
		ReadinessEndpointName:         "/readyz",
		LeaderElection:                true,
		LeaderElectionID:              component,
		LeaderElectionNamespace:       op.namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &grace,
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	return nil
}

// secure makes a server serve the webhook's certificate under the cluster's TLS policy.
func (op *operator) secure(config *tls.Config) {
	config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if op.keeper == nil {
			return nil, errors.New("there is no certificate yet")
		}
		return op.keeper.GetCertificate(hello)
	}
	op.policy.Configure(config)
}

func (op *operator) buildServers() error {
	keeper, err := certificates.Setup(op.mgr, certificates.Options{
		Mode: op.certificates, Namespace: op.namespace, Secret: op.certificateSecret,
		WebhookConfiguration: op.webhookConfiguration, Service: op.service,
	})
	if err != nil {
		return fmt.Errorf("set up the webhook's certificate: %w", err)
	}
	op.keeper = keeper
	if err := webhook.Setup(op.mgr, op.driverName, op.namespace); err != nil {
		return fmt.Errorf("set up the webhook: %w", err)
	}
	for name, check := range map[string]healthz.Checker{
		"webhook":     op.mgr.GetWebhookServer().StartedChecker(),
		"certificate": func(request *http.Request) error { return keeper.Ready(request) },
	} {
		if err := op.mgr.AddReadyzCheck(name, op.logged(name, check)); err != nil {
			return err
		}
	}
	return op.mgr.AddHealthzCheck("ping", healthz.Ping)
}

// logged logs why a check fails, once for each reason: the answer to a probe withholds it.
func (op *operator) logged(name string, check healthz.Checker) healthz.Checker {
	var last atomic.Value
	last.Store("")
	return func(request *http.Request) error {
		err, reason := check(request), ""
		if err != nil {
			reason = err.Error()
		}
		if last.Swap(reason) != reason && reason != "" {
			op.log.WarnContext(request.Context(), "not ready", logging.KeyCheck, name, logging.KeyError, reason)
		}
		return err
	}
}

func (op *operator) buildPlatform(ctx context.Context) error {
	asker, err := discovery.NewDiscoveryClientForConfigAndClient(op.mgr.GetConfig(), op.mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make a discovery client: %w", err)
	}
	op.platform, err = platform.New(ctx, platform.Options{
		Discovery: asker, Cache: op.mgr.GetCache(), Reader: op.mgr.GetAPIReader(),
		Policy: op.policy, Changed: op.wakeController, Log: op.log,
	})
	if err != nil {
		return err
	}
	return op.mgr.Add(op.platform)
}

// wakeController wakes the controller. One event that was not taken yet is enough.
func (op *operator) wakeController() {
	select {
	case op.changed <- event.GenericEvent{Object: eventSubject()}:
	default:
	}
}

func (op *operator) buildController() error {
	chart, err := charts.HostpathProvisioner()
	if err != nil {
		return fmt.Errorf("read the embedded chart: %w", err)
	}
	renderer, err := render.New(chart)
	if err != nil {
		return err
	}
	rendered, err := op.renderedCache()
	if err != nil {
		return err
	}
	ready := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubevirt_hpp_cr_ready",
		Help: "Whether the HostPathProvisioner is available: 1 yes, 0 no, -1 not known yet, or this pod does not lead.",
	})
	if err := metrics.Registry.Register(ready); err != nil {
		return fmt.Errorf("register a metric: %w", err)
	}
	return controller.New(controller.Options{
		Predecessor: op.predecessor(),
		Client:      op.mgr.GetClient(), Live: op.mgr.GetAPIReader(), Rendered: rendered,
		Renderer: render.Remember(renderer), Platform: op.platform, Policy: op.policy, Definition: op.definition,
		Recorder: op.mgr.GetEventRecorder(component), Ready: ready, Log: op.log,
		Namespace: op.namespace, ReleaseName: op.releaseName, BaseConfig: op.baseConfig, DriverName: op.driverName,
		Version: buildinfo.Version(), TakeoverInterval: op.takeoverInterval, FinalizerGrace: op.finalizerGrace,
	}).Setup(op.mgr, op.changed)
}

// predecessor is what is there of kubevirt's.
func (op *operator) predecessor() *predecessor.Predecessor {
	return predecessor.New(predecessor.Options{
		Live: op.mgr.GetAPIReader(), Nodes: op.mgr.GetClient(), Writer: op.mgr.GetClient(), Namespace: op.namespace,
		WebhookConfiguration: op.webhookConfiguration,
	})
}
