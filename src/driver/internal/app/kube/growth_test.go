package kube_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/app/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/growth"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// growing is a client of an API server that answers from a table of paths, with or without the selector of the driver's
// capacities.
func growing(t *testing.T, answers map[string]any) kube.Growth {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		path := r.URL.Path
		if selector := r.URL.Query().Get("labelSelector"); selector != "" {
			path += "?" + selector
		}
		answer, ok := answers[path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
			}
		}
		if code, ok := answer.(int); ok {
			w.WriteHeader(code)
			return
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			panic(err)
		}
	}))
	t.Cleanup(server.Close)
	c := clientOf(t, server, "controller")
	return kube.Growth{Client: c, Namespace: "hpp", Resolve: func(name string) string {
		if name == "" {
			return "local"
		}
		return name
	}}
}

// clientOf is a driver's client of an API server.
func clientOf(t *testing.T, server *httptest.Server, node string) *kube.Client {
	t.Helper()
	api, err := kube.NewAPI(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c, err := kube.New(kube.Config{
		API: api, DriverName: driver, NodeName: node, TopologyKey: key, Log: slog.New(slog.DiscardHandler),
		Timeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func class(name, provisioner string, parameters map[string]string) storagev1.StorageClass {
	return storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
		Parameters: parameters,
	}
}

func capacity(class, node string, available, maximum int64) storagev1.CSIStorageCapacity {
	c := storagev1.CSIStorageCapacity{
		StorageClassName: class, NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{key: node}},
		Capacity: resource.NewQuantity(available, resource.BinarySI),
	}
	if maximum >= 0 {
		c.MaximumVolumeSize = resource.NewQuantity(maximum, resource.BinarySI)
	}
	return c
}

const capacities = "/apis/storage.k8s.io/v1/namespaces/hpp/csistoragecapacities?csi.storage.k8s.io/drivername=" + driver

func TestRoom(t *testing.T) {
	g := growing(t, map[string]any{
		"/apis/storage.k8s.io/v1/storageclasses": storagev1.StorageClassList{Items: []storagev1.StorageClass{
			class("local", driver, nil), class("local-named", driver, map[string]string{"storagePool": "local"}),
			class("ssd", driver, map[string]string{"storagePool": "ssd"}), class("other", "other.driver", nil),
		}},
		capacities: storagev1.CSIStorageCapacityList{Items: []storagev1.CSIStorageCapacity{
			capacity("local", "one", 5, -1), capacity("local-named", "one", 9, 7), capacity("ssd", "one", 100, 100),
			capacity("local", "two", 50, 0), capacity("other", "one", 1000, 1000), capacity("ssd", "two", 0, 0),
		}},
	})
	for _, test := range []struct {
		pool, node string
		want       int64
		ok         bool
	}{
		{"local", "one", 9, true},
		{"local", "two", 50, true},
		{"ssd", "two", 0, true},
		{"local", "three", 0, false},
		{"hdd", "one", 0, false},
	} {
		got, ok, err := g.Room(t.Context(), test.pool, test.node)
		if err != nil || got != test.want || ok != test.ok {
			t.Errorf("%s on %s: %d, %v, %v; want %d, %v", test.pool, test.node, got, ok, err, test.want, test.ok)
		}
	}
}

func claimOf(uid string, bytes int64) corev1.PersistentVolumeClaim {
	c := corev1.PersistentVolumeClaim{}
	c.Namespace, c.Name = "shop", "data"
	c.UID = "77"
	if uid != "" {
		c.UID = "other"
	}
	c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(bytes, resource.BinarySI)}
	return c
}

func TestFindGivenAndGrants(t *testing.T) {
	claim := records.Claim{Namespace: "shop", Name: "data", UID: "77"}
	want := growth.Volume{Handle: "pvc-1", Pool: "local", Node: "worker-1", Bytes: 5 << 30, Claim: claim}
	for name, test := range map[string]struct {
		claim  corev1.PersistentVolumeClaim
		ok     bool
		grants []growth.Grant
	}{
		"not given yet": {claimOf("", 3<<30), true, []growth.Grant{{Volume: want, To: 5 << 30}}},
		"given":         {claimOf("", 5<<30), true, nil},
		"another claim": {claimOf("other", 3<<30), false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			object := pv("pvc-1", driver, "pvc-1", "worker-1")
			volumes := []corev1.PersistentVolume{*object, *pv("pvc-2", driver, "pvc-2", "")}
			claims := []corev1.PersistentVolumeClaim{test.claim}
			g := growing(t, map[string]any{
				"/api/v1/persistentvolumes/pvc-1":                        object,
				"/api/v1/persistentvolumes":                              corev1.PersistentVolumeList{Items: volumes},
				"/api/v1/namespaces/shop/persistentvolumeclaims/data":    test.claim,
				"/api/v1/persistentvolumeclaims":                         corev1.PersistentVolumeClaimList{Items: claims},
				"/apis/storage.k8s.io/v1/storageclasses":                 http.StatusInternalServerError,
				"/api/v1/namespaces/shop/persistentvolumeclaims/broken":  http.StatusInternalServerError,
				"/api/v1/namespaces/shop/persistentvolumeclaims/missing": http.StatusNotFound,
			})
			got, ok, err := g.Find(t.Context(), "pvc-1")
			if diff := cmp.Diff(want, got); diff != "" || !ok || err != nil {
				t.Errorf("find: %v, %v\n%s", ok, err, diff)
			}
			given, ok, err := g.Given(t.Context(), claim)
			if err != nil || ok != test.ok || (ok && given != test.claim.Status.Capacity.Storage().Value()) {
				t.Errorf("given: %d, %v, %v", given, ok, err)
			}
			grants, err := g.Grants(t.Context())
			if diff := cmp.Diff(test.grants, grants); diff != "" || err != nil {
				t.Errorf("grants: %v\n%s", err, diff)
			}
			if _, _, err := g.Room(t.Context(), "local", "worker-1"); !errors.Is(err, volume.ErrClusterUnknown) {
				t.Errorf("classes cannot be listed: %v", err)
			}
			if _, _, err := g.Given(t.Context(), records.Claim{Namespace: "shop", Name: "broken"}); !errors.Is(err,
				volume.ErrClusterUnknown) {
				t.Errorf("a claim cannot be read: %v", err)
			}
		})
	}
}
