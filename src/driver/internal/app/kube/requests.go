package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const (
	persistentVolumes = "persistentvolumes"
	// page is how many objects are asked for at a time.
	page = 500
)

// API is the part of a cluster's API that the driver uses: requests by path, with types of its own for what it reads
// (objects.go), and metadata of any object. client-go's clientset has the types of every API there is; they would be
// half of the driver's memory.
type API struct {
	core rest.Interface
	meta metadata.Interface
}

// Connect returns the API of the cluster of a kubeconfig file, or with an empty path of the cluster that this process
// runs in. A request that waits for its turn, one of so many per second, counts as unanswered after its timeout.
func Connect(kubeconfig string, requestsPerSecond int) (*API, error) {
	read := rest.InClusterConfig
	if kubeconfig != "" {
		read = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	config, err := read()
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API (--kubeconfig, or a service account in the cluster): %w", err)
	}
	config.UserAgent = reporter + "/" + buildinfo.Version()
	config.QPS, config.Burst = float32(requestsPerSecond), 2*requestsPerSecond
	return NewAPI(config)
}

// NewAPI returns the API of a cluster.
func NewAPI(config *rest.Config) (*API, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // errors, and the events of a watch
	addWatched(scheme)
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

// requests asks the API, one request at a time, and sends events.
type requests struct {
	Config
	events chan *event
}

// newRequests wants of the optional fields those that a view cannot do without.
func newRequests(c Config, wanted ...string) (requests, error) {
	wanted = append(wanted, c.DriverName, c.TopologyKey)
	if c.API == nil || c.Log == nil || c.Timeout <= 0 || slices.Contains(wanted, "") {
		return requests{}, errors.New("view of Kubernetes: a field of its Config is missing")
	}
	return requests{Config: c, events: make(chan *event, eventQueue)}, nil
}

// do makes a request, which has its answer when do returns.
func (r *requests) do(ctx context.Context, request *rest.Request) rest.Result {
	brief, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return request.Do(brief)
}

// read asks the API and reads its answer.
func (r *requests) read(ctx context.Context, request *rest.Request, into any) error {
	result := r.do(ctx, request)
	if err := result.Error(); err != nil { // Raw leaves out what the API says
		return err // each caller says what was asked for
	}
	data, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// send writes an object.
func (r *requests) send(ctx context.Context, request *rest.Request, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return r.do(ctx, request.Body(body)).Error()
}

// apply makes an object what it says, server-side; fields of others stay.
func (r *requests) apply(ctx context.Context, request *rest.Request, object any) error {
	return r.send(ctx, request.Param("fieldManager", reporter).Param("force", "true"), object)
}

// metadata gets what every object has; the namespace of one without is "".
func (r *requests) metadata(
	ctx context.Context, kind schema.GroupVersionResource, namespace, name string,
) (*metav1.PartialObjectMetadata, error) {
	brief, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return r.API.meta.Resource(kind).Namespace(namespace).Get(brief, name, metav1.GetOptions{})
}

// coreResource is a kind of objects of the core group.
func coreResource(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

// list visits all objects of a kind, page by page.
func list[T any](ctx context.Context, r *requests, path, selector string, visit func(*T)) error {
	options := metav1.ListOptions{Limit: page, LabelSelector: selector}
	for {
		var got objectList[T]
		request := r.API.core.Get().AbsPath(path).VersionedParams(&options, metav1.ParameterCodec)
		if err := r.read(ctx, request, &got); err != nil {
			return fmt.Errorf("%w: list %s: %w", nodeapi.ErrClusterUnknown, path, err)
		}
		for i := range got.Items {
			visit(&got.Items[i])
		}
		if options.Continue = got.Continue; options.Continue == "" {
			return nil
		}
	}
}

// named gets the PersistentVolume of this driver whose name and volumeHandle are id, nil where there is none.
func (r *requests) named(ctx context.Context, id string) (*persistentVolume, error) {
	var object persistentVolume
	err := r.read(ctx, r.API.core.Get().Resource(persistentVolumes).Name(id), &object)
	switch {
	case err == nil && object.of(r.DriverName) && object.Spec.CSI.VolumeHandle == id:
		return &object, nil
	case err == nil || apierrors.IsNotFound(err) || apierrors.IsInvalid(err):
		return nil, nil
	}
	return nil, fmt.Errorf("%w: get PersistentVolume %s: %w", nodeapi.ErrClusterUnknown, id, err)
}
