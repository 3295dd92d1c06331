package kube

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
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
	return newAPI(config, core, client)
}

func newAPI(config, core *rest.Config, client *http.Client) (*API, error) {
	objects, coreErr := rest.RESTClientForConfigAndClient(core, client)
	meta, metaErr := metadata.NewForConfigAndClient(metadata.ConfigFor(config), client)
	if err := errors.Join(coreErr, metaErr); err != nil {
		return nil, fmt.Errorf("make a client of the Kubernetes API: %w", err)
	}
	return &API{core: objects, meta: meta}, nil
}
