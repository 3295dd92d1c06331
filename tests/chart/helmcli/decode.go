package helmcli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	securityv1 "github.com/openshift/api/security/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scheme knows every kind that the chart can render, the foreign ones included. Those of cert-manager it knows by
// name only: the types come with a server's whole dependencies.
func Scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	all := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(all), securityv1.Install(all), monitoringv1.AddToScheme(all),
		snapshotv1.AddToScheme(all)); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"Issuer", "Certificate"} {
		all.AddKnownTypeWithName(
			schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: kind}, &unstructured.Unstructured{},
		)
	}
	return all
}

// Objects decodes a rendering. A field that the type does not have, a repeated key or a kind
// that nobody knows fails the test.
func Objects(t *testing.T, manifest string) []client.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(Scheme(t), serializer.EnableStrict).UniversalDeserializer()
	var objects []client.Object
	for _, document := range documents(t, manifest) {
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		typed, ok := object.(client.Object)
		if !ok {
			t.Fatalf("%T has no metadata, in\n%s", object, document)
		}
		objects = append(objects, typed)
	}
	return objects
}

// Raw gives a rendering as it is written: a typed object would add the zero values that the chart left out.
func Raw(t *testing.T, manifest string) []client.Object {
	t.Helper()
	var objects []client.Object
	for _, document := range documents(t, manifest) {
		var object unstructured.Unstructured
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		objects = append(objects, &object)
	}
	return objects
}

// documents splits a rendering.
func documents(t *testing.T, manifest string) [][]byte {
	t.Helper()
	var all [][]byte
	reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if !blank(document) {
			all = append(all, document)
		}
	}
}

// blank tells whether a document holds nothing but comments.
func blank(document []byte) bool {
	for line := range bytes.Lines(document) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && string(line) != "---" {
			return false
		}
	}
	return true
}

// Find gives the one object of type T with that name.
func Find[T client.Object](t *testing.T, objects []client.Object, name string) T {
	t.Helper()
	var found []T
	for _, object := range objects {
		if typed, ok := object.(T); ok && object.GetName() == name {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		var zero T
		t.Fatalf("%d objects %T %q, want one; there are:\n%s", len(found), zero, name, strings.Join(Ids(objects), "\n"))
	}
	return found[0]
}

// Ids names each object: kind, namespace and name.
func Ids(objects []client.Object) []string {
	var ids []string
	for _, object := range objects {
		kind := object.GetObjectKind().GroupVersionKind().Kind
		ids = append(ids, fmt.Sprintf("%s %s/%s", kind, object.GetNamespace(), object.GetName()))
	}
	return ids
}
