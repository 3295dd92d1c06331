package controller_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/report"
)

const (
	full        = harness.Release + "-hostpath-provisioner"
	service     = full + "-controller"
	class       = "perf"
	topologyKey = "topology.hostpath.csi/node"
	// waitTimeout ends what never comes.
	waitTimeout = 20 * time.Minute
)

// world is a control plane with an installed chart.
type world struct {
	*harness.Server
	options
	client     client.WithWatch // not held up by rates
	http       *http.Client
	containers map[string]corev1.Container // of the controller's pod
	programs   map[string]string           // binaries by container, and of the nodes
	account    string                      // of the controller's pod
	template   corev1.PodTemplateSpec      // of the DaemonSet
	pods       []*corev1.Pod               // one for each node
	made       int                         // volumes
	few        float64                     // watches with few nodes
	audit      string                      // file with a line for each request of a ServiceAccount
	sections   []report.Section
}

func install(t *testing.T, o options) *world {
	t.Helper()
	audit := filepath.Join(t.TempDir(), "audit.log")
	s := harness.Start(t, auditFlags(t, audit)...)
	w := &world{
		Server: s, options: o, containers: map[string]corev1.Container{}, programs: map[string]string{}, audit: audit,
	}
	config := rest.CopyConfig(s.Config)
	config.QPS, config.Burst = 2000, 4000
	var err error
	if w.client, err = client.NewWithWatch(config, client.Options{Scheme: s.Client.Scheme()}); err != nil {
		t.Fatal(err)
	}
	if w.http, err = rest.HTTPClientFor(config); err != nil {
		t.Fatal(err)
	}
	if out, err := s.Helm(t).Run(t, helmcli.Values{}, "install", harness.Release, helmcli.ChartDir(t)); err != nil {
		t.Fatalf("helm install: %v\n%s", err, out)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: service}}
	pod := harness.Get(t, s, deployment).Spec.Template.Spec
	w.account = pod.ServiceAccountName
	w.programs["controller"] = s.Build(t, "./src/controller")
	w.programs["nodes"] = s.Build(t, "./src/internal/link/linktest/nodes")
	for _, c := range pod.Containers {
		if w.containers[c.Name] = c; c.Name != "controller" {
			w.programs[c.Name] = sidecar(t, filepath.Base(c.Image))
		}
	}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: full + "-csi"}}
	w.template = harness.Get(t, s, set).Spec.Template
	s.Delete(t, set) // its controller's pods would need a scheduler
	s.Create(t, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: names.Driver,
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	return w
}

// each does something with the numbers from..to-1, 16 at a time.
func each(t *testing.T, from, to int, do func(i int) error) {
	t.Helper()
	var all errgroup.Group
	all.SetLimit(16)
	for i := from; i < to; i++ {
		all.Go(func() error { return do(i) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

// addNodes makes nodes with the driver's pod on each, until there are so many.
func (w *world) addNodes(t *testing.T, nodes int) {
	t.Helper()
	for i := len(w.pods); i < nodes; i++ {
		name := fmt.Sprintf("node-%04d", i)
		w.pods = append(w.pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: name, Labels: w.template.Labels},
			Spec: corev1.PodSpec{
				NodeName: name, ServiceAccountName: w.template.Spec.ServiceAccountName,
				Containers: []corev1.Container{{Name: "driver", Image: "none"}},
			},
		})
		labels := map[string]string{topologyKey: name, corev1.LabelHostname: name}
		w.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
				{Name: names.Driver, NodeID: name, TopologyKeys: []string{topologyKey}},
			}},
		}, w.pods[i])
	}
}

func claim(name, storageClass string, annotations map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: name, Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &storageClass, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: size()},
		},
	}
}

func size() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

// addVolumes makes bound volumes until each node has its share.
func (w *world) addVolumes(t *testing.T) {
	t.Helper()
	share := w.volumes / w.nodes
	each(t, w.made, share*len(w.pods), func(i int) error {
		node := w.pods[i/share].Name
		id := fmt.Sprintf("%s-%d", node, i%share)
		c := claim(id, "manual", map[string]string{
			"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
		})
		c.Spec.VolumeName = id
		if err := w.client.Create(t.Context(), c); err != nil {
			return err
		}
		v := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{
				Name: id, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": names.Driver},
			},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: size(), AccessModes: c.Spec.AccessModes, StorageClassName: "manual",
				ClaimRef: &corev1.ObjectReference{
					APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: id, UID: c.UID,
				},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: names.Driver, VolumeHandle: id},
				},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: topologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
					}}},
				}},
			},
		}
		if err := w.client.Create(t.Context(), v); err != nil {
			return err
		}
		// What the controller manager would do, slowly. It may have been here: whose write wins does not matter.
		v.Status.Phase, c.Status.Phase = corev1.VolumeBound, corev1.ClaimBound
		c.Status.Capacity, c.Status.AccessModes, v.ResourceVersion, c.ResourceVersion = size(), c.Spec.AccessModes, "",
			""
		if err := w.client.Status().Update(t.Context(), v); err != nil {
			return err
		}
		return w.client.Status().Update(t.Context(), c)
	})
	w.made = share * len(w.pods)
}

// forget removes what the processes of another layout have left.
func (w *world) forget(t *testing.T) {
	t.Helper()
	for _, object := range []client.Object{&storagev1.CSIStorageCapacity{}, &coordinationv1.Lease{}} {
		if err := w.client.DeleteAllOf(t.Context(), object, client.InNamespace(harness.Namespace)); err != nil {
			t.Fatal(err)
		}
	}
}

// watches counts those of everybody.
func (w *world) watches(t *testing.T) (n float64) {
	t.Helper()
	page, err := harness.Fetch(t.Context(), w.http, strings.TrimSuffix(w.Config.Host, "/")+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "apiserver_longrunning_requests{") && strings.Contains(line, `verb="WATCH"`) {
			value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:len(line)-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			n += value
		}
	}
	return n
}
