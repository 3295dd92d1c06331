package predecessor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
)

func moment() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

// operator is a Deployment of that name in the namespace kubevirt, with this in its selector.
func operator(selector, value string, replicas *int32) appsv1.Deployment {
	return appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: operatorName},
		Spec: appsv1.DeploymentSpec{
			Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{selector: value}},
		},
	}
}

func version(namespace, name string, deployments ...string) unstructured.Unstructured {
	var all []any
	for _, deployment := range deployments {
		all = append(all, map[string]any{"name": deployment})
	}
	object := unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"install": map[string]any{
		"spec": map[string]any{"deployments": all},
	}}}}
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

func node(name string, ready corev1.ConditionStatus, since time.Duration) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(moment().Add(-since)),
		}}},
	}
}

func pod(name, on string, labels map[string]string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: on}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func deployed(d appsv1.Deployment) operators { return operators{deployments: []appsv1.Deployment{d}} }

func TestOperatorsThatRun(t *testing.T) {
	t.Parallel()
	const scale = "Deployment kubevirt/hostpath-provisioner-operator: run `kubectl scale deployment " +
		"--namespace=kubevirt hostpath-provisioner-operator --replicas=0`"
	const csv = "hostpathprovisioneroperator.v0.25.2"
	subscription := unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"installedCSV": csv}}}
	subscription.SetNamespace("olm-ns")
	subscription.SetName("hpp")
	shown := version("default", csv, operatorName)
	shown.SetLabels(map[string]string{copied: "olm-ns"})
	ofOLM := operator(nameLabel, operatorName, nil)
	ofOLM.Labels = map[string]string{olmOwner: csv}
	for name, test := range map[string]struct {
		there operators
		want  []string
	}{
		"nothing":        {},
		"running":        {deployed(operator(nameLabel, operatorName, nil)), []string{scale}},
		"scaled to 0":    {deployed(operator(nameLabel, operatorName, new(int32(0)))), nil},
		"ours, so named": {deployed(operator(componentLabel, "operator", nil)), nil},
		"a pod is left": {
			operators{
				deployments: []appsv1.Deployment{operator(nameLabel, operatorName, new(int32(0)))},
				pods:        []corev1.Pod{pod("a", "n", nil)},
				nodes:       []corev1.Node{node("n", corev1.ConditionTrue, time.Hour)},
			},
			[]string{"its pods are ending: waits for pods to end: kubevirt/a on n"},
		},
		"a pod of ours": {
			operators{pods: []corev1.Pod{pod("a", "n", map[string]string{componentLabel: "operator"})}}, nil,
		},
		"by OLM": {
			operators{
				deployments: []appsv1.Deployment{ofOLM}, subscriptions: []unstructured.Unstructured{subscription},
				versions: []unstructured.Unstructured{version("olm-ns", csv, operatorName), shown},
			},
			[]string{"ClusterServiceVersion olm-ns/" + csv + ": run `kubectl delete --namespace=olm-ns subscription." +
				"operators.coreos.com/hpp clusterserviceversion.operators.coreos.com/" + csv + "`"},
		},
		"in a bundle": {
			operators{
				versions: []unstructured.Unstructured{
					version("cnv", "kubevirt-hyperconverged.v1", operatorName, "virt"),
				},
			},
			[]string{"ClusterServiceVersion cnv/kubevirt-hyperconverged.v1 installs it together with 1 other " +
				"Deployments, and OLM brings it back: take it out of that product by the product's own means"},
		},
		"another's": {operators{versions: []unstructured.Unstructured{version("a", "other.v1", "other")}}, nil},
	} {
		if diff := cmp.Diff(test.want, test.there.sentences(moment())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestWhatDrives: the label alone does not tell.
func TestWhatDrives(t *testing.T) {
	t.Parallel()
	with := func(more ...string) map[string]string {
		labels := map[string]string{appLabel: provisioner}
		for i := 0; i < len(more); i += 2 {
			labels[more[i]] = more[i+1]
		}
		return labels
	}
	old := pod("old", "n", with())
	old.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: csiName, Controller: new(true)}}
	for name, test := range map[string]struct {
		pod  corev1.Pod
		want bool
	}{
		"kubevirt's":               {pod("a", "n", with(managedByLabel, operatorName)), true},
		"of an old version":        {old, true},
		"microk8s's":               {pod("a", "n", with()), false},
		"ours":                     {pod("a", "n", with(managedByLabel, operatorName, names.OwnedBy, "x")), false},
		"what mounts a pool claim": {pod("a", "n", with(managedByLabel, operatorName, poolLabel, "a-hpp")), false},
	} {
		if got := drives(&test.pod); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	leaving := pod("a", "n", nil)
	leaving.DeletionTimestamp = new(metav1.NewTime(moment().Add(-20 * time.Minute)))
	late := pod("a", "n", nil)
	late.DeletionTimestamp = new(metav1.NewTime(moment().Add(30 * time.Second)))
	job := pod("a", "n", nil)
	job.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "cleanup-pool-a-n", Controller: new(true)}}
	set := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: csiName}}
	gone := set
	gone.DeletionTimestamp = leaving.DeletionTimestamp
	for name, test := range map[string]struct {
		there workloads
		want  string
	}{
		"nothing":                {},
		"a DaemonSet is deleted": {workloads{daemonSets: []appsv1.DaemonSet{set}}, "they are being deleted"},
		"a pod": {
			workloads{pods: []corev1.Pod{leaving}, nodes: []corev1.Node{node("n", corev1.ConditionTrue, time.Hour)}},
			"waits for pods to end: kubevirt/a on n",
		},
		"a node is away": {
			workloads{pods: []corev1.Pod{leaving}, nodes: []corev1.Node{node("n", corev1.ConditionFalse, time.Minute)}},
			"pods are left on nodes that are gone or not ready: kubevirt/a on n; waits for the nodes until",
		},
		"a node is away for long": {workloads{
			daemonSets: []appsv1.DaemonSet{gone}, pods: []corev1.Pod{leaving},
			nodes: []corev1.Node{node("n", corev1.ConditionFalse, 11*time.Minute)},
		}, ""},
		"a node was away for long before": {workloads{
			daemonSets: []appsv1.DaemonSet{gone}, pods: []corev1.Pod{late},
			nodes: []corev1.Node{node("n", corev1.ConditionUnknown, 24*time.Hour)},
		}, ""},
		"a node is gone": {workloads{pods: []corev1.Pod{leaving}}, ""},
		"a Job elsewhere": {
			workloads{pods: []corev1.Pod{job}, nodes: []corev1.Node{node("n", corev1.ConditionTrue, time.Hour)}},
			"; to end a Job of kubevirt's, run `kubectl delete job --namespace=kubevirt " +
				"--selector=app.kubernetes.io/managed-by=hostpath-provisioner-operator`",
		},
	} {
		got := test.there.message("hpp", moment())
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	by := apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: no endpoints", "a"))
	for err, want := range map[error]bool{
		by: true, fmt.Errorf("write: %w", by): true, apierrors.NewInternalError(fmt.Errorf("etcd")): false,
		apierrors.NewBadRequest("failed calling webhook"): false,
	} {
		if Refused(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}

func TestWebhooksOfKubevirts(t *testing.T) {
	t.Parallel()
	webhook := func(path *string, groups ...string) admissionv1.ValidatingWebhook {
		return admissionv1.ValidatingWebhook{
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Path: path}},
			Rules:        []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{APIGroups: groups}}},
		}
	}
	for name, test := range map[string]struct {
		webhook admissionv1.ValidatingWebhook
		want    bool
	}{
		"kubevirt's":      {webhook(new(webhookPath), "apps", names.Group), true},
		"another path":    {webhook(new("/validate"), names.Group), false},
		"no path":         {webhook(nil, names.Group), false},
		"another group":   {webhook(new(webhookPath), "apps"), false},
		"without service": {admissionv1.ValidatingWebhook{}, false},
	} {
		if got := callsKubevirts(test.webhook); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestIdleMounters(t *testing.T) {
	t.Parallel()
	var theirs appsv1.Deployment
	theirs.Labels = map[string]string{poolLabel: "a-hpp"}
	terms := []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"n"},
		}},
	}}
	theirs.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
	ours := func(pool, on string, available int32) appsv1.Deployment {
		var d appsv1.Deployment
		d.Labels, d.Annotations = map[string]string{names.PoolLabel: pool}, map[string]string{names.NodeAnnotation: on}
		d.Status.AvailableReplicas = available
		return d
	}
	behind := ours("a", "n", 1)
	behind.Generation = 1
	claims := []v1beta1.StoragePool{{Name: "a", PVCTemplate: &corev1.PersistentVolumeClaimSpec{}}}
	alone := []v1beta1.StoragePool{{Name: "a", PVCTemplate: &corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
	}}}
	leaving := ours("a", "n", 0)
	leaving.DeletionTimestamp = new(metav1.NewTime(moment()))
	here := []corev1.Node{node("n", corev1.ConditionFalse, time.Hour)}
	for name, test := range map[string]struct {
		pools []v1beta1.StoragePool
		nodes []corev1.Node
		ours  []appsv1.Deployment
		want  bool
	}{
		"needed":                {claims, here, nil, false},
		"ours is available":     {claims, here, []appsv1.Deployment{ours("b", "n", 1), ours("a", "n", 1)}, true},
		"ours is not":           {claims, here, []appsv1.Deployment{ours("a", "n", 0)}, false},
		"ours is behind":        {claims, here, []appsv1.Deployment{behind}, false},
		"one pod, ours waits":   {alone, here, []appsv1.Deployment{ours("a", "n", 0)}, true},
		"one pod, none of ours": {alone, here, []appsv1.Deployment{ours("a", "m", 1)}, false},
		"one pod, ours goes":    {alone, here, []appsv1.Deployment{leaving}, false},
		"ours on another node":  {claims, here, []appsv1.Deployment{ours("a", "m", 1)}, false},
		"ours of another pool":  {claims, here, []appsv1.Deployment{ours("b", "n", 1)}, false},
		"the node is gone":      {claims, nil, nil, true},
		"the pool is gone":      {nil, here, nil, true},
		"the pool has no claim": {[]v1beta1.StoragePool{{Name: "a"}}, here, nil, true},
	} {
		if got := isMounterIdle(&theirs, test.pools, test.nodes, test.ours); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
