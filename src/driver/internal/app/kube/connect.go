package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Connect returns the core API of the cluster of a kubeconfig file, or with an empty path of the cluster that this process
// runs in. It is not the usual clientset: that one holds the types of every API there is, half of the driver's memory.
func Connect(kubeconfig, userAgent string) (rest.Interface, error) {
	read := rest.InClusterConfig
	if kubeconfig != "" {
		read = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	config, err := read()
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API (--kubeconfig, or a service account in the cluster): %w", err)
	}
	config.UserAgent = userAgent
	return NewAPI(config)
}

// NewAPI returns the core API of a cluster.
func NewAPI(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("learn the types of the Kubernetes API: %w", err)
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the Kubernetes API: %w", err)
	}
	return client, nil
}

// sink sends events, as package record wants them sent.
type sink struct{ *Client }

func (s sink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.send(s.API.Post().Namespace(event.Namespace).Resource("events").Body(event))
}

func (s sink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.send(s.API.Put().Namespace(event.Namespace).Resource("events").Name(event.Name).Body(event))
}

func (s sink) Patch(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	return s.send(s.API.Patch(types.StrategicMergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).Body(patch))
}

func (s sink) send(request *rest.Request) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.Timeout)
	defer cancel()
	sent := &corev1.Event{}
	if err := request.Do(ctx).Into(sent); err != nil {
		return nil, err // record looks at its kind and tries again
	}
	return sent, nil
}
