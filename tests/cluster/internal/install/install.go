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
		return 6
	}
	return 5
}

// Run builds and pushes the images, installs or upgrades the chart, makes the
// demo's claim and pod, and prints what to do next.
func Run(ctx context.Context, c *kindcluster.Cluster, o Options, out io.Writer) error {
	version, err := appVersion(o.Chart)
	if err != nil {
		return err
	}
	steps := c.Printer()
	var digests map[string]string
	err = steps.Step("images: compile and push driver and selftest "+version, time.Minute,
		func(report func(string)) (err error) {
			// all that the chart runs by default
			digests, err = c.PushProductWithReport(ctx, version, report, "driver", "selftest")
			return err
		})
	if err != nil {
		return err
	}
	if err := provide.Sidecars(ctx, c); err != nil {
		return err
	}
	helm, err := provide.Helm(ctx, c)
	if err != nil {
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
	if err := os.WriteFile(pinned, []byte(digestValues(digests)), 0o600); err != nil {
		return err
	}
	args := []string{
		"upgrade", "--install", release, o.Chart, "--namespace", namespace,
		"--kubeconfig", c.Kubeconfig(), "--wait", "--timeout", "3m", "--values", pinned,
	}
	for _, file := range o.Values {
		args = append(args, "--values", file)
	}
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

// digestValues pins the images just pushed. The tag stays the same from one
// `up` to the next; the digest changes exactly when the content does, and
// then the pods are replaced.
func digestValues(digests map[string]string) string {
	return fmt.Sprintf("driver:\n  image:\n    digest: %q\nselftest:\n  image:\n    digest: %q\n",
		digests["driver"], digests["selftest"])
}

// trouble is what a person would look at first when pods do not start.
func trouble(ctx context.Context, c *kindcluster.Cluster) string {
	var b strings.Builder
	for _, args := range [][]string{
		{"get", "pods", "--namespace", namespace, "--output", "wide"},
		{"get", "events", "--namespace", namespace, "--field-selector", "type=Warning", "--sort-by", ".lastTimestamp"},
		{
			"logs", "--namespace", namespace, "--selector", "app.kubernetes.io/instance=" + release, "--container", "driver",
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
