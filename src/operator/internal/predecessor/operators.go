package predecessor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// olmGroup is that of the Operator Lifecycle Manager.
	olmGroup = "operators.coreos.com"
	// csvPrefix begins the name of the ClusterServiceVersion that kubevirt publishes; others may bundle the operator.
	csvPrefix = "hostpathprovisioneroperator."
	// copied is on a ClusterServiceVersion that OLM only shows in another namespace, olmOwner on what it installs.
	copied, olmOwner = "olm.copiedFrom", "olm.owner"
)

// operators is what can run kubevirt's operator.
type operators struct {
	deployments   []appsv1.Deployment
	pods          []corev1.Pod
	versions      []unstructured.Unstructured // ClusterServiceVersions
	subscriptions []unstructured.Unstructured
	nodes         []corev1.Node
}

func (p *Predecessor) operators(ctx context.Context) (operators, error) {
	var found operators
	var deployments appsv1.DeploymentList
	if err := p.Live.List(ctx, &deployments, client.MatchingFields{"metadata.name": operatorName}); err != nil {
		return found, fmt.Errorf("find kubevirt's operator: list Deployments: %w", advise(err))
	}
	var pods corev1.PodList
	if err := p.Live.List(ctx, &pods, client.MatchingLabels{nameLabel: operatorName}); err != nil {
		return found, fmt.Errorf("find kubevirt's operator: list pods: %w", advise(err))
	}
	found.deployments, found.pods = deployments.Items, pods.Items
	var err error
	if found.versions, err = p.ofOLM(ctx, "ClusterServiceVersion"); err != nil {
		return found, err
	}
	if len(found.versions) > 0 {
		if found.subscriptions, err = p.ofOLM(ctx, "Subscription"); err != nil {
			return found, err
		}
	}
	found.nodes, err = p.listNodes(ctx)
	return found, err
}

// ofOLM are the objects of a kind of the Operator Lifecycle Manager; none where there is no such manager.
func (p *Predecessor) ofOLM(ctx context.Context, kind string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: olmGroup, Version: "v1alpha1", Kind: kind + "List"})
	err := p.Live.List(ctx, list)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find kubevirt's operator: list %ss: %w", kind, advise(err))
	}
	return list.Items, nil
}

// sentences says what runs, and how to end it.
func (o operators) sentences(now time.Time) []string {
	var all []string
	for i := range o.versions {
		if others, is := installs(&o.versions[i]); is {
			all = append(all, o.ofVersion(&o.versions[i], others))
		}
	}
	byOLM := len(all) > 0
	for i := range o.deployments {
		d := &o.deployments[i]
		if !kubevirts(d) || byOLM && d.Labels[olmOwner] != "" || d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
			continue
		}
		all = append(all, fmt.Sprintf("Deployment %s/%s: run `kubectl scale deployment --namespace=%s %s --replicas=0`",
			d.Namespace, d.Name, d.Namespace, d.Name))
	}
	if len(all) > 0 {
		return all
	}
	pods := slices.DeleteFunc(slices.Clone(o.pods),
		func(pod corev1.Pod) bool { return pod.Labels[componentLabel] == "operator" })
	if left := leftPods(pods, o.nodes, now); left != "" {
		all = append(all, "its pods are ending: "+left)
	}
	return all
}

// kubevirts reports whether a Deployment with the name of kubevirt's operator is not this project's: the chart selects
// pods by their component.
func kubevirts(d *appsv1.Deployment) bool {
	return d.Name == operatorName &&
		(d.Spec.Selector == nil || d.Spec.Selector.MatchLabels[componentLabel] != "operator")
}

// installs reports whether a ClusterServiceVersion installs kubevirt's operator, and how many others beside it.
func installs(version *unstructured.Unstructured) (others int, is bool) {
	if version.GetLabels()[copied] != "" {
		return 0, false
	}
	is = strings.HasPrefix(version.GetName(), csvPrefix)
	deployments, _, _ := unstructured.NestedSlice(version.Object, "spec", "install", "spec", "deployments")
	for _, deployment := range deployments {
		fields, _ := deployment.(map[string]any)
		if fields["name"] == operatorName {
			is = true
		} else {
			others++
		}
	}
	return others, is
}

func (o operators) ofVersion(version *unstructured.Unstructured, others int) string {
	namespace, name := version.GetNamespace(), version.GetName()
	what := fmt.Sprintf("ClusterServiceVersion %s/%s", namespace, name)
	if others > 0 {
		return fmt.Sprintf("%s installs it together with %d other Deployments, and OLM brings it back: take it out of "+
			"that product by the product's own means", what, others)
	}
	objects := "clusterserviceversion." + olmGroup + "/" + name
	for i := range o.subscriptions {
		subscription := &o.subscriptions[i]
		installed, _, _ := unstructured.NestedString(subscription.Object, "status", "installedCSV")
		if subscription.GetNamespace() == namespace && installed == name {
			// First: it would install the other one again.
			objects = "subscription." + olmGroup + "/" + subscription.GetName() + " " + objects
		}
	}
	return fmt.Sprintf("%s: run `kubectl delete --namespace=%s %s`", what, namespace, objects)
}
