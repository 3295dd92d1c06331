// Package install puts the driver into a cluster the way a user would: with
// Helm and the chart of this repository.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/provide"
)

// Where the chart goes.
const (
	release   = "hpp"
	namespace = "hostpath-provisioner"
)

// Options say what is installed into a cluster.
type Options struct {
	// Chart is the chart's folder, Values are files with values for it.
	Chart  string
	Values []string
	// Demo adds a claim and a pod that writes to it.
	Demo bool
}

// Steps is how many steps Run prints.
func (o Options) Steps() int {
	if o.Demo {
		return 10
	}
	return 9
}

// Run builds and pushes the images, installs or upgrades the chart, makes the
// demo's claim and pod, and prints what to do next.
func Run(ctx context.Context, c *kindcluster.Cluster, o Options, out io.Writer) error {
	version, err := appVersion(o.Chart)
	if err != nil {
		return err
	}
	steps := c.Printer()
	helm, err := provide.Helm(ctx, c)
	if err != nil {
		return err
	}
	digests, err := pushImages(ctx, c, helm, o, version)
	if err != nil {
		return err
	}
	if err := provide.Sidecars(ctx, c); err != nil {
		return err
	}
	// Before the chart: it asks the cluster for their API.
	if err := provide.Snapshots(ctx, c); err != nil {
		return err
	}
	err = steps.Step("helm upgrade --install "+release+" "+o.Chart, 20*time.Second, func(func(string)) error {
		return installChart(ctx, c, helm, o, digests)
	})
	if err != nil {
		return err
	}
	if !o.Demo {
		return Summary(ctx, c, out)
	}
	return runDemo(ctx, c, version, digests["selftest"], out)
}

// pushImages builds and pushes what the chart runs with the values given, and returns the digests by name.
func pushImages(
	ctx context.Context, c *kindcluster.Cluster, helm string, o Options, version string,
) (digests map[string]string, err error) {
	var names []string
	err = c.Printer().Step("helm template: which images these values need", 0, func(func(string)) error {
		names, err = o.images(ctx, helm)
		return err
	})
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("images: compile and push %s %s", strings.Join(names, ", "), version)
	err = c.Printer().Step(what, time.Duration(len(names))*30*time.Second, func(report func(string)) error {
		digests, err = c.PushProductWithReport(ctx, version, report, names...)
		return err
	})
	return digests, err
}

// images returns the names of this repository's images that Run needs.
func (o Options) images(ctx context.Context, helm string) ([]string, error) {
	args := append([]string{"template", release, o.Chart, "--namespace", namespace}, o.valuesArgs()...)
	cmd := exec.CommandContext(ctx, helm, args...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	manifests, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("render the chart with these values: %w\n%s", err, complaints.String())
	}
	names, err := imagesOf(manifests)
	if o.Demo && !slices.Contains(names, "selftest") {
		names = append(names, "selftest")
	}
	return names, err
}

func (o Options) valuesArgs() []string {
	var args []string
	for _, file := range o.Values {
		args = append(args, "--values", file)
	}
	return args
}

// appVersion reads the version that the chart's images have.
func appVersion(chart string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		return "", fmt.Errorf("read the chart (--chart names its folder): %w", err)
	}
	var c struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(raw, &c); err != nil {
		return "", fmt.Errorf("read Chart.yaml in %s: %w", chart, err)
	}
	if c.AppVersion == "" {
		return "", fmt.Errorf("chart in %s has no appVersion", chart)
	}
	return c.AppVersion, nil
}

// privilegedNamespace lets the driver's pods in where Pod Security is
// enforced: Helm cannot label a namespace that it does not own.
const privilegedNamespace = `apiVersion: v1
kind: Namespace
metadata:
  name: ` + namespace + `
  labels:
    pod-security.kubernetes.io/enforce: privileged
`

// withoutReserve is the chart's own pool, but the nodes share one disk, of which a developer may have little left.
const withoutReserve = `
storagePools:
  - name: local
    path: /var/lib/hostpath-provisioner
`

func installChart(
	ctx context.Context, c *kindcluster.Cluster, helm string, o Options, digests map[string]string,
) (err error) {
	if _, err := c.Kubectl(ctx, strings.NewReader(privilegedNamespace), "apply", "-f", "-"); err != nil {
		return fmt.Errorf("make namespace %s: %w", namespace, err)
	}
	work, err := os.MkdirTemp("", "hpp-values-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	pinned := filepath.Join(work, "digests.yaml")
	values, err := digestValues(digests)
	if err != nil {
		return err
	}
	if err := os.WriteFile(pinned, append(values, withoutReserve...), 0o600); err != nil {
		return err
	}
	args := []string{
		"upgrade", "--install", release, o.Chart, "--namespace", namespace,
		"--kubeconfig", c.Kubeconfig(), "--wait", "--timeout", "3m", "--values", pinned,
	}
	args = append(args, o.valuesArgs()...)
	err = run(ctx, helm, args...)
	if err != nil && strings.Contains(err.Error(), "another operation") {
		return fmt.Errorf("an earlier helm was killed in the middle; `%s rollback %s --namespace %s`, or uninstall in "+
			"place of rollback, makes way: %w",
			helm, release, namespace, err)
	}
	if err != nil {
		return fmt.Errorf("install the chart: %w\n%s", err, trouble(ctx, c))
	}
	return nil
}

// trouble is what a person would look at first when pods do not start.
func trouble(ctx context.Context, c *kindcluster.Cluster) string {
	var b strings.Builder
	for _, args := range [][]string{
		{"get", "pods", "--namespace", namespace, "--output", "wide"},
		{"get", "events", "--namespace", namespace, "--field-selector", "type=Warning", "--sort-by", ".lastTimestamp"},
		{
			"logs", "--namespace", namespace, "--selector", "app.kubernetes.io/instance=" + release, "--all-containers",
			"--prefix", "--tail", "15",
		},
	} {
		text, err := c.Kubectl(ctx, nil, args...)
		if err != nil {
			text = err.Error()
		}
		fmt.Fprintf(&b, "\n$ kubectl %s\n%s\n", strings.Join(args, " "), text)
	}
	return b.String()
}

func run(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return nil
}
