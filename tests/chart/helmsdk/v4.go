package helmsdk

import (
	"context"
	"fmt"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/cli/values"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// install4 is `helm template` of Helm 4.
func install4(ctx context.Context, r request) (release, error) {
	kube, err := common.ParseKubeVersion(helmcli.KubeVersion)
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
	client := action.NewInstall(action.NewConfiguration())
	client.DryRunStrategy, client.Replace = action.DryRunClient, true
	client.ReleaseName, client.Namespace = helmcli.Release, helmcli.Namespace
	client.KubeVersion, client.APIVersions = kube, r.apiVersions
	answer, err := client.RunWithContext(ctx, chart, merged)
	if err != nil {
		return release{}, err
	}
	rel, ok := answer.(*releasev1.Release)
	if !ok {
		return release{}, fmt.Errorf("the release of Helm 4 is a %T", answer)
	}
	result := release{manifest: rel.Manifest, notes: rel.Info.Notes}
	for _, h := range rel.Hooks {
		result.hooks = append(result.hooks, hook{path: h.Path, manifest: h.Manifest})
	}
	return result, nil
}
