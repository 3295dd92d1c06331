package helmsdk

import (
	"context"
	"fmt"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli/values"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// install3 is `helm template` of Helm 3.
func install3(ctx context.Context, r request) (release, error) {
	kube, err := chartutil.ParseKubeVersion(helmcli.KubeVersion)
	if err != nil {
		return release{}, fmt.Errorf("parse the Kubernetes version %s: %w", helmcli.KubeVersion, err)
	}
	options := values.Options{ValueFiles: r.files, Values: r.set, JSONValues: r.json}
	merged, err := options.MergeValues(nil)
	if err != nil {
		return release{}, err
	}
	// Rendering changes a chart that it was given, so that each has its own.
	chart, err := loader.Load(r.chart)
	if err != nil {
		return release{}, err
	}
	client := action.NewInstall(&action.Configuration{Log: func(string, ...any) {}})
	client.DryRun, client.DryRunOption, client.ClientOnly, client.Replace = true, "client", true, true
	client.ReleaseName, client.Namespace = helmcli.Release, helmcli.Namespace
	client.KubeVersion, client.APIVersions = kube, r.apiVersions
	rel, err := client.RunWithContext(ctx, chart, merged)
	if err != nil {
		return release{}, err
	}
	result := release{manifest: rel.Manifest, notes: rel.Info.Notes}
	for _, h := range rel.Hooks {
		result.hooks = append(result.hooks, hook{path: h.Path, manifest: h.Manifest})
	}
	return result, nil
}
