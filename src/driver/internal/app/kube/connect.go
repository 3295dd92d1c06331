package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// API is the part of a cluster's API that the driver uses: the core group, with types of its own for what it reads
// there (objects.go). client-go's clientset has the types of every API there is; they would be half of the driver's
// memory.
type API struct {
	core rest.Interface
	meta metadata.Interface
}

// requestsPerSecond bounds the driver's requests. It makes few, but a list of all PersistentVolumes comes in pages, and
// one that waits in its own client would count as unanswered.
const requestsPerSecond = 50

// Connect returns the API of the cluster of a kubeconfig file, or with an empty path of the cluster that this process
// runs in.
func Connect(kubeconfig, userAgent string) (*API, error) {
	read := rest.InClusterConfig
	if kubeconfig != "" {
		read = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	config, err := read()
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API (--kubeconfig, or a service account in the cluster): %w", err)
	}
	config.UserAgent = userAgent
	config.QPS, config.Burst = requestsPerSecond, 2*requestsPerSecond
	return NewAPI(config)
}

// NewAPI returns the API of a cluster.
func NewAPI(config *rest.Config) (*API, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // the answers that are errors
	core := rest.CopyConfig(config)
	core.APIPath = "/api"
	core.GroupVersion = &schema.GroupVersion{Version: "v1"}
	core.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	core.ContentType = runtime.ContentTypeJSON
	client, err := rest.HTTPClientFor(core)
	if err != nil {
		return nil, fmt.Errorf("make a client of the Kubernetes API: %w", err)
	}
	objects, coreErr := rest.RESTClientForConfigAndClient(core, client)
	meta, metaErr := metadata.NewForConfigAndClient(metadata.ConfigFor(config), client)
	if err := errors.Join(coreErr, metaErr); err != nil {
		return nil, fmt.Errorf("make a client of the Kubernetes API: %w", err)
	}
	return &API{core: objects, meta: meta}, nil
}

// Standalone stands in for a cluster where there is none: no PersistentVolumes, no labels, and events go to the log.
type Standalone struct{ Log *slog.Logger }

// Get finds nothing.
func (Standalone) Get(context.Context, string) (pv pool.PersistentVolume, ok bool, err error) {
	return pv, false, nil
}

// List gives nothing.
func (Standalone) List(context.Context) ([]pool.PersistentVolume, error) { return nil, nil }

// Normal logs an event.
func (s Standalone) Normal(reason, message string) {
	s.Log.Info("event", logging.KeyReason, reason, logging.KeyMessage, message)
}

// Warning logs an event.
func (s Standalone) Warning(reason, message string) {
	s.Log.Warn("event", logging.KeyReason, reason, logging.KeyMessage, message)
}

// Report logs conditions.
func (s Standalone) Report(_ context.Context, conditions []Condition) error {
	for _, c := range conditions {
		s.Log.Info("condition", logging.KeyReason, c.Reason, logging.KeyMessage, c.Message)
	}
	return nil
}

// Tell logs an event on a claim.
func (s Standalone) Tell(claim records.Claim, reason, message string) {
	s.Log.Info("event", logging.KeyClaim, claim.Namespace+"/"+claim.Name, logging.KeyReason, reason, logging.KeyMessage,
		message)
}

// Run waits for ctx to end; the node has no labels.
func (Standalone) Run(ctx context.Context, learned func(labels map[string]string)) error {
	learned(nil)
	<-ctx.Done()
	return nil
}
