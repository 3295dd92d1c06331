// Package render turns the operator's base values and a HostPathProvisioner into manifests, by rendering the embedded
// chart: the chart is the only source of the driver's manifests. It is pure: it asks no API and touches no disk.
package render

import (
	"context"
	"fmt"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/poolclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// ManagedBy is the value of the label app.kubernetes.io/managed-by on all that the operator applies. kubevirt's
// operator used the same.
const ManagedBy = "hostpath-provisioner-operator"

// Renderer renders one chart.
type Renderer struct {
	files   []file
	version string
}

// Input is all that a rendering depends on.
type Input struct {
	// Base is the file values.yaml of the base ConfigMap.
	Base []byte
	// Resource lies on top of the base.
	Resource *v1beta1.HostPathProvisioner
	// ReleaseName and Namespace are the operator's own.
	ReleaseName, Namespace string
	// KubeVersion is the API server's version (v1.37.2); APIVersions are what it serves, as Helm names them ("apps/v1",
	// "apps/v1/DaemonSet").
	KubeVersion string
	APIVersions []string
	// MinTLSVersion and CipherSuites are the cluster's TLS policy, by the names that Kubernetes gives them.
	MinTLSVersion string
	CipherSuites  []string
	// Mounts are the pools that claims provide, on each of their nodes.
	Mounts []poolclaims.Mount
}

// Result is what a rendering gives.
type Result struct {
	// Objects in the order in which they are to be applied.
	Objects []*unstructured.Unstructured
	// Pools are the resource's pools in their order, whether they are served or not.
	Pools []pools.Outcome
	// NotServed says what was asked for and left out because this version or this cluster does not have it.
	NotServed []string
	// Violations are what the resource says and the webhook would refuse today.
	Violations []string
	// templates are the served pools that claims provide.
	templates []v1beta1.StoragePool
}

// leaveOut notes what was asked for and is not served.
func (r *Result) leaveOut(format string, args ...any) {
	r.NotServed = append(r.NotServed, fmt.Sprintf(format, args...))
}

// New reads a chart from a folder that holds Chart.yaml.
func New(folder fs.FS) (*Renderer, error) {
	files, err := readFiles(folder)
	if err != nil {
		return nil, fmt.Errorf("read the embedded chart: %w", err)
	}
	chart, err := loadChart(files)
	if err != nil {
		return nil, fmt.Errorf("load the embedded chart: %w", err)
	}
	return &Renderer{files: files, version: chart.AppVersion()}, nil
}

// Version is the version of what the chart installs (its appVersion).
func (r *Renderer) Version() string { return r.version }

// Plan says which pools claims provide, and where the driver runs. It is what Input.Mounts are made of.
func (r *Renderer) Plan(in Input) (poolclaims.Plan, error) {
	chart, err := loadChart(r.files)
	if err != nil {
		return poolclaims.Plan{}, fmt.Errorf("load the embedded chart: %w", err)
	}
	var result Result
	values, err := layerValues(chart, in, &result)
	if err != nil {
		return poolclaims.Plan{}, err
	}
	placement, err := values.placement()
	return poolclaims.Plan{Placement: placement, Pools: result.templates}, err
}

// Render gives the manifests. An error means that there are none: what runs is best left alone.
func (r *Renderer) Render(ctx context.Context, in Input) (Result, error) {
	// Rendering changes a chart that it was given, so that each has its own.
	chart, err := loadChart(r.files)
	if err != nil {
		return Result{}, fmt.Errorf("load the embedded chart: %w", err)
	}
	var result Result
	values, err := layerValues(chart, in, &result)
	if err != nil {
		return Result{}, err
	}
	sorted, err := manifests(ctx, chart, values, in)
	if err != nil {
		return Result{}, err
	}
	objects, err := decode(sorted)
	if err != nil {
		return Result{}, err
	}
	for _, object := range objects {
		kind := object.GroupVersionKind()
		if !slices.Contains(Kinds(), kind) {
			return Result{}, fmt.Errorf(
				"the chart made a %s (%s), which this operator does not watch; this is a bug, please report it",
				kind.Kind, kind.GroupVersion())
		}
		if !slices.Contains(in.APIVersions, APIVersion(kind)) {
			result.leaveOut("%s %q is left out: this cluster does not have the API %s; install what brings it, "+
				"or turn the value off", kind.Kind, object.GetName(), kind.GroupVersion())
			continue
		}
		markOwned(object)
		result.Objects = append(result.Objects, object)
	}
	return result, nil
}

// APIVersion names a kind as Helm's Capabilities.APIVersions does.
func APIVersion(kind schema.GroupVersionKind) string {
	return kind.GroupVersion().String() + "/" + kind.Kind
}

// Kinds are all kinds that the chart can make without the operator: what is watched, and where pruning looks.
func Kinds() []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{}
	for _, of := range []struct {
		group, version string
		kinds          []string
	}{
		{"", "v1", []string{"ConfigMap", "Service", "ServiceAccount"}},
		{
			"admissionregistration.k8s.io", "v1",
			[]string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
		},
		{"apps", "v1", []string{"DaemonSet", "Deployment"}},
		{"cert-manager.io", "v1", []string{"Certificate", "Issuer"}},
		{"monitoring.coreos.com", "v1", []string{"PodMonitor", "PrometheusRule", "ServiceMonitor"}},
		{"networking.k8s.io", "v1", []string{"NetworkPolicy"}},
		{"policy", "v1", []string{"PodDisruptionBudget"}},
		{"rbac.authorization.k8s.io", "v1", []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}},
		{"security.openshift.io", "v1", []string{"SecurityContextConstraints"}},
		{snapshotGroup, "v1", []string{"VolumeSnapshotClass"}},
		{"storage.k8s.io", "v1", []string{"CSIDriver", "StorageClass"}},
	} {
		for _, kind := range of.kinds {
			kinds = append(kinds, schema.GroupVersionKind{Group: of.group, Version: of.version, Kind: kind})
		}
	}
	return kinds
}
