package render

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// position is where in a template an error arose, as Helm writes it before a sentence of the chart's own.
var position = regexp.MustCompile(`execution error at \([^)]*\): `)

// file is one file of the chart, with its path from the chart's root.
type file struct {
	name string
	data []byte
}

func readFiles(folder fs.FS) ([]file, error) {
	var files []file
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(folder, name)
		files = append(files, file{name, data})
		return err
	})
	return files, err
}

func loadChart(files []file) (*chartv2.Chart, error) {
	buffered := make([]*archive.BufferedFile, len(files))
	for i, f := range files {
		buffered[i] = &archive.BufferedFile{Name: f.name, Data: f.data}
	}
	return loader.LoadFiles(buffered)
}

// manifests renders the chart as `helm template` does, in the order that Helm installs in, without NOTES, hooks and
// CRDs. It goes through the parts of Helm that action.Install is made of, because action itself brings a registry,
// databases and a WebAssembly machine along, which make the binary twice as large.
func manifests(
	ctx context.Context, chart *chartv2.Chart, values map[string]any, in Input,
) ([]releaseutil.Manifest, error) {
	version, err := common.ParseKubeVersion(in.KubeVersion)
	if err != nil {
		return nil, fmt.Errorf("the API server's version %q: %w", in.KubeVersion, err)
	}
	if wanted := chart.Metadata.KubeVersion; !chartutil.IsCompatibleRange(wanted, version.String()) {
		return nil, fmt.Errorf("this version wants Kubernetes %s, and the cluster is %s", wanted, in.KubeVersion)
	}
	helm := common.DefaultCapabilities.HelmVersion
	capabilities := &common.Capabilities{KubeVersion: *version, APIVersions: in.APIVersions, HelmVersion: helm}
	release := common.ReleaseOptions{Name: in.ReleaseName, Namespace: in.Namespace, Revision: 1, IsInstall: true}
	top, err := util.ToRenderValuesWithSchemaValidation(chart, values, release, capabilities, false)
	if err != nil {
		return nil, fmt.Errorf("the values that base and resource make are wrong: %w", err)
	}
	files, err := engine.Engine{}.RenderWithContext(ctx, chart, top)
	if err != nil {
		return nil, fmt.Errorf("the chart refuses the values: %s",
			position.ReplaceAllString(strings.TrimSpace(err.Error()), ""))
	}
	maps.DeleteFunc(files, func(name, _ string) bool { return path.Base(name) == "NOTES.txt" })
	_, sorted, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, fmt.Errorf("sort the rendered manifests: %w", err)
	}
	return sorted, nil
}

// decode reads what was rendered, with whole numbers as int64, as the API machinery wants them.
func decode(manifests []releaseutil.Manifest) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, manifest := range manifests {
		object := &unstructured.Unstructured{}
		data, err := yaml.YAMLToJSON([]byte(manifest.Content))
		if err == nil {
			err = json.Unmarshal(data, &object.Object)
		}
		if err != nil {
			return nil, fmt.Errorf("read what %s was rendered to: %w", manifest.Name, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// markOwned labels an object, and the pods that it makes, as the operator's.
func markOwned(object *unstructured.Unstructured) {
	own := labels.Set{names.OwnedBy: names.CustomResource, "app.kubernetes.io/managed-by": ManagedBy}
	object.SetLabels(labels.Merge(object.GetLabels(), own))
	at := []string{"spec", "template", "metadata", "labels"}
	if template, found, err := unstructured.NestedStringMap(object.Object, at...); found && err == nil {
		// It was a map of texts a line above, so that it can be one again.
		_ = unstructured.SetNestedStringMap(object.Object, labels.Merge(template, own), at...)
	}
}
