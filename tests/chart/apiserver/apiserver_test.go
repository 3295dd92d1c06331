// Package apiserver tests the chart against a real kube-apiserver and etcd that know the foreign kinds: what no
// schema of ours can say, the server's own validation does.
package apiserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	securityv1 "github.com/openshift/api/security/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// server is a running API server with nothing behind it: objects stay as they were written.
type server struct {
	client     client.Client
	kubeconfig string
}

func TestChartOnRealAPIServer(t *testing.T) {
	t.Parallel()
	s := start(t)
	t.Run("dry run", func(t *testing.T) { dryRun(t, s) })
	helmcli.Each(t, func(t *testing.T, helm helmcli.Helm) {
		helm.Kubeconfig = s.kubeconfig
		life(t, s, helm)
	})
}

// dryRun sends each rendering to the server as it is, with strict field validation.
func dryRun(t *testing.T, s *server) {
	ci := filepath.Join(helmcli.ChartDir(t), "ci")
	testdata := filepath.Join("..", "testdata")
	helm := helmcli.Newest(t)
	for name, files := range map[string][]string{
		"default":              {filepath.Join(ci, "default-values.yaml")},
		"two pools":            {filepath.Join(ci, "two-pools-values.yaml")},
		"options":              {filepath.Join(ci, "options-values.yaml")},
		"provisioners":         {filepath.Join(ci, "provisioners-values.yaml")},
		"rights":               {filepath.Join(ci, "rights-values.yaml")},
		"pods":                 {filepath.Join(testdata, "pods.yaml")},
		"rest":                 {filepath.Join(testdata, "rest.yaml")},
		"openshift":            {filepath.Join(testdata, "openshift.yaml")},
		"everything":           {filepath.Join(testdata, "everything.yaml")},
		"service monitor":      {filepath.Join(testdata, "service-monitor.yaml")},
		"kubelet dir":          {filepath.Join(testdata, "kubelet-dir.yaml")},
		"operator":             {filepath.Join(ci, "operator-values.yaml")},
		"operator, everything": {filepath.Join(testdata, "everything.yaml"), filepath.Join(testdata, "operator.yaml")},
	} {
		objects := helmcli.Raw(t, helm.MustTemplate(t, helmcli.Values{Files: files}))
		if len(objects) < 10 {
			t.Errorf("%s: only %d objects", name, len(objects))
		}
		for i, object := range objects {
			err := s.client.Create(t.Context(), object, client.DryRunAll,
				client.FieldValidation(metav1.FieldValidationStrict))
			if err != nil {
				t.Errorf("%s: %s: %v", name, helmcli.Ids(objects)[i], err)
			}
		}
	}
}

// life installs, upgrades and uninstalls a release.
func life(t *testing.T, s *server, helm helmcli.Helm) {
	chart := helmcli.ChartDir(t)
	run := func(values helmcli.Values, command string, args ...string) string {
		t.Helper()
		out, err := helm.Run(t, values, command, args...)
		if err != nil {
			t.Fatalf("helm %s: %v", command, err)
		}
		return out
	}
	notes := run(helmcli.Values{}, "install", helmcli.Release, chart)
	if !strings.Contains(notes, "hostpath-local: WaitForFirstConsumer") {
		t.Errorf("install printed no NOTES:\n%s", notes)
	}
	pods := client.ObjectKey{Namespace: helmcli.Namespace, Name: "hpp-hostpath-provisioner-csi"}
	before := get(t, s, pods, &appsv1.DaemonSet{})
	// The server offers SecurityContextConstraints, and `openshift: auto` asks it.
	get(t, s, client.ObjectKey{Name: before.Spec.Template.Annotations["openshift.io/required-scc"]},
		&securityv1.SecurityContextConstraints{})
	// And of VolumeSnapshots, which `snapshots: auto` asks it for.
	get(t, s, client.ObjectKey{Name: "hostpath-point-in-time"}, &snapshotv1.VolumeSnapshotClass{})
	permissions(t, s)
	fill(t, s)

	run(helmcli.Values{Set: map[string]string{label: "upgraded"}, JSON: map[string]string{
		"storagePools": `[{"name":"local","path":"/var/lib/hostpath-provisioner"},` +
			`{"name":"two","path":"/srv/two","maxVolumes":1000000}]`,
		"storageClasses": `[{"name":"hostpath-local","storagePool":"local"},` +
			`{"name":"two","storagePool":"two","default":true}]`,
	}}, "upgrade", helmcli.Release, chart)
	stillFilled(t, s, "upgraded")
	after := get(t, s, pods, &appsv1.DaemonSet{})
	const checksum = "checksum/config"
	if before.UID != after.UID ||
		before.Spec.Template.Annotations[checksum] == after.Spec.Template.Annotations[checksum] {
		t.Errorf("the upgrade has to keep the DaemonSet and to roll its pods: uid %s → %s, %s → %s", before.UID,
			after.UID, before.Spec.Template.Annotations[checksum], after.Spec.Template.Annotations[checksum])
	}
	config := get(t, s, pods, &corev1.ConfigMap{}).Data["config.yaml"]
	if !strings.Contains(config, "maxVolumes: 1000000\n") {
		t.Errorf("the configuration does not hold the number as a whole one:\n%s", config)
	}
	get(t, s, client.ObjectKey{Name: "two"}, &storagev1.StorageClass{})

	flip(t, s, run)
	// Nothing here runs the Job that would ask first.
	run(helmcli.Values{}, "uninstall", helmcli.Release, "--no-hooks")
	for key, object := range map[client.ObjectKey]client.Object{
		pods: &appsv1.DaemonSet{}, {Name: "kubevirt.io.hostpath-provisioner"}: &storagev1.CSIDriver{},
		{Name: "two"}: &storagev1.StorageClass{},
	} {
		if err := s.client.Get(t.Context(), key, object); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is still there after uninstall: %v", object, key, err)
		}
	}
	for _, kept := range filled()[:2] {
		get(t, s, client.ObjectKeyFromObject(kept), kept)
	}
	for _, how := range [][]string{nil, {"--server-side"}} {
		applied(t, s, helm, how)
	}
}

// label is a value that changes all objects of the chart.
const label = "commonLabels.how"

// filled are the objects that the chart makes without data, for the controller to fill. The first two are kept.
func filled() []client.Object {
	meta := func(suffix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: helmcli.Namespace, Name: "hpp-hostpath-provisioner-" + suffix}
	}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta("shared-pool-ids")},
		&corev1.ConfigMap{ObjectMeta: meta("moves")},
		&corev1.ConfigMap{ObjectMeta: meta("controller-authorities")},
		&corev1.Secret{ObjectMeta: meta("controller-tls")},
	}
}

// fill does what the controller does with them.
func fill(t *testing.T, s *server) {
	t.Helper()
	for _, object := range filled() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"key":"b25l"}}`))
		if err := s.client.Patch(t.Context(), object, patch, client.FieldOwner("the controller")); err != nil {
			t.Fatal(err)
		}
	}
}

// stillFilled wants the data where it was after the chart's objects have got another label.
func stillFilled(t *testing.T, s *server, how string) {
	t.Helper()
	for _, object := range filled() {
		get(t, s, client.ObjectKeyFromObject(object), object)
		var data string
		switch o := object.(type) {
		case *corev1.ConfigMap:
			data = o.Data["key"]
		case *corev1.Secret:
			data = string(o.Data["key"])
		}
		if data != "b25l" && data != "one" || object.GetLabels()["how"] != how {
			t.Errorf("%s: %T %s has key %q, labels %v", how, object, object.GetName(), data, object.GetLabels())
		}
	}
}

// applied is for those who hand the rendered chart to kubectl: what the controller has written stays.
func applied(t *testing.T, s *server, helm helmcli.Helm, how []string) {
	t.Helper()
	kubectl := func(how, command string, flags ...string) {
		t.Helper()
		text := helm.MustTemplate(t, helmcli.Values{Set: map[string]string{label: how}, NoHooks: true})
		run := exec.CommandContext(t.Context(), filepath.Join(helmcli.Assets(t), "kubectl"),
			append([]string{command, "--kubeconfig", s.kubeconfig, "--filename", "-"}, flags...)...)
		run.Stdin = strings.NewReader(text)
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", run, err, out)
		}
	}
	kubectl("first", "apply", how...)
	fill(t, s)
	kubectl("second", "apply", how...)
	stillFilled(t, s, "second")
	kubectl("second", "delete")
}

// flip turns the operator on: Helm removes the driver, and an upgrade keeps the caBundle that somebody else wrote.
func flip(t *testing.T, s *server, run func(helmcli.Values, string, ...string) string) {
	t.Helper()
	const operator = "hpp-hostpath-provisioner-operator"
	upgrade := func(replicas string) *appsv1.Deployment {
		values := helmcli.Values{Set: map[string]string{"operator.enabled": "true", "operator.replicas": replicas}}
		if notes := run(values, "upgrade", helmcli.Release, helmcli.ChartDir(t)); !strings.Contains(
			notes, "kind: HostPathProvisioner\n",
		) {
			t.Errorf("upgrade printed no HostPathProvisioner:\n%s", notes)
		}
		return get(t, s, client.ObjectKey{Namespace: helmcli.Namespace, Name: operator}, &appsv1.Deployment{})
	}
	upgrade("1")
	var sets appsv1.DaemonSetList
	if err := s.client.List(t.Context(), &sets, client.InNamespace(helmcli.Namespace)); err != nil ||
		len(sets.Items) > 0 {
		t.Errorf("%d DaemonSets are left to Helm (%v)", len(sets.Items), err)
	}
	configuration := get(t, s, client.ObjectKey{Name: operator}, &admissionv1.ValidatingWebhookConfiguration{})
	if bundle := configuration.Webhooks[0].ClientConfig.CABundle; len(bundle) > 0 {
		t.Errorf("the chart sets a caBundle: %s", bundle)
	}
	configuration.Webhooks[0].ClientConfig.CABundle = []byte("written by the operator")
	if err := s.client.Update(t.Context(), configuration, client.FieldOwner("operator")); err != nil {
		t.Fatal(err)
	}
	if replicas := *upgrade("2").Spec.Replicas; replicas != 2 {
		t.Errorf("%d replicas after the upgrade, want 2", replicas)
	}
	get(t, s, client.ObjectKey{Name: operator}, configuration)
	if bundle := string(configuration.Webhooks[0].ClientConfig.CABundle); bundle != "written by the operator" {
		t.Errorf("caBundle %q after an upgrade, want it as it was", bundle)
	}
}

// permissions asks the server's own authorizer what the accounts of the nodes' pods and of the controller's may do.
func permissions(t *testing.T, s *server) {
	t.Helper()
	const node, controller = "hpp-hostpath-provisioner-csi", "hpp-hostpath-provisioner-controller"
	for _, test := range []struct {
		want                                            bool
		account, verb, group, resource, namespace, name string
	}{
		{true, node, "watch", "", "nodes", "", ""},
		{true, node, "list", "", "persistentvolumes", "", ""},
		{false, node, "create", "", "events", "default", ""},
		{false, node, "patch", "", "pods/status", helmcli.Namespace, ""},
		{true, node, "get", "", "configmaps", helmcli.Namespace, controller + "-authorities"},
		{true, node, "get", "apps", "daemonsets", helmcli.Namespace, node},
		{false, node, "get", "", "configmaps", helmcli.Namespace, "another"},
		{false, node, "patch", "", "configmaps", helmcli.Namespace, controller + "-authorities"},
		{false, node, "patch", "", "nodes", "", ""},
		{false, node, "create", "", "persistentvolumes", "", ""},
		{false, node, "get", "", "persistentvolumeclaims", "elsewhere", ""},
		{false, node, "list", "storage.k8s.io", "csistoragecapacities", helmcli.Namespace, ""},
		{false, node, "get", "", "secrets", helmcli.Namespace, controller + "-tls"},
		{false, node, "get", "", "pods", helmcli.Namespace, ""},
		{true, controller, "create", "", "persistentvolumes", "", ""},
		{true, controller, "patch", "", "persistentvolumeclaims", "elsewhere", ""},
		{true, controller, "create", "authentication.k8s.io", "tokenreviews", "", ""},
		{true, controller, "get", "", "namespaces", "kube-system", "kube-system"},
		{false, controller, "get", "", "namespaces", "default", "default"},
		{false, controller, "list", "", "namespaces", "", ""},
		{true, controller, "create", "storage.k8s.io", "csistoragecapacities", helmcli.Namespace, ""},
		{true, controller, "get", "apps", "replicasets", helmcli.Namespace, ""},
		{true, controller, "patch", "", "secrets", helmcli.Namespace, controller + "-tls"},
		{false, controller, "create", "", "secrets", helmcli.Namespace, ""},
		{false, controller, "create", "", "configmaps", helmcli.Namespace, ""},
		{
			true, controller, "update", "coordination.k8s.io", "leases", helmcli.Namespace,
			"kubevirt-io-hostpath-provisioner",
		},
		{true, controller, "update", "coordination.k8s.io", "leases", helmcli.Namespace, controller},
		{false, controller, "update", "coordination.k8s.io", "leases", helmcli.Namespace, "another"},
		{true, controller, "create", "", "events", "default", ""},
		{true, controller, "update", "snapshot.storage.k8s.io", "volumesnapshots", "elsewhere", ""},
		{true, controller, "patch", "snapshot.storage.k8s.io", "volumesnapshotcontents/status", "", ""},
		{false, controller, "create", "snapshot.storage.k8s.io", "volumesnapshotcontents", "", ""},
		{false, controller, "delete", "snapshot.storage.k8s.io", "volumesnapshots", "elsewhere", ""},
		{true, controller, "patch", "", "pods/status", helmcli.Namespace, ""},
		{false, controller, "patch", "", "pods/status", "elsewhere", ""},
		{false, controller, "patch", "", "pods", helmcli.Namespace, ""},
		{false, controller, "get", "", "secrets", helmcli.Namespace, "another"},
		{false, controller, "patch", "", "configmaps", helmcli.Namespace, "another"},
		{false, controller, "update", "", "nodes", "", ""},
		{false, controller, "delete", "", "persistentvolumeclaims", helmcli.Namespace, ""},
		{false, controller, "create", "storage.k8s.io", "csistoragecapacities", "elsewhere", ""},
		{false, controller, "get", "", "pods", "elsewhere", ""},
		{false, controller, "create", "", "pods", helmcli.Namespace, ""},
		{false, controller, "create", "", "serviceaccounts/token", helmcli.Namespace, ""},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + helmcli.Namespace + ":" + test.account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: test.verb, Group: test.group, Resource: test.resource, Namespace: test.namespace, Name: test.name,
			},
		}}
		if err := s.client.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != test.want {
			t.Errorf("%s may %s %s.%s %q in %q: %v, want %v (%s)", test.account, test.verb, test.resource, test.group,
				test.name, test.namespace, review.Status.Allowed, test.want, review.Status.Reason)
		}
	}
}

func get[T client.Object](t *testing.T, s *server, key client.ObjectKey, into T) T {
	t.Helper()
	if err := s.client.Get(t.Context(), key, into); err != nil {
		t.Fatalf("get %T %s: %v", into, key, err)
	}
	return into
}

// start runs kube-apiserver and etcd until the test ends.
func start(t *testing.T) *server {
	t.Helper()
	environment := &envtest.Environment{Scheme: helmcli.Scheme(t)}
	config := helmcli.StartAPIServer(t, environment)
	helmcli.InstallKinds(t, config, environment.Scheme, slices.Concat(
		helmcli.OpenShiftKinds(t), helmcli.MonitoringKinds(t), helmcli.CertManagerKinds(t), helmcli.SnapshotKinds(t),
	)...)
	c, err := client.New(config, client.Options{Scheme: environment.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{helmcli.Namespace, "kube-storage"} {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, environment.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return &server{client: c, kubeconfig: path}
}
