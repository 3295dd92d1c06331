// Package e2e tests what users are promised, one feature a test, on a kind
// cluster with the driver installed from the chart.
//
// By default the cluster hpp-e2e is made for the run and removed after it.
//
//	E2E_CLUSTER=hpp       use that cluster, which must run, and leave it there; its release gets this suite's values
//	E2E_KEEP=1            leave the cluster and what the features made, to look at or to run again
//	E2E_IMAGES=driver     push these images only (with commas); the others are those of an earlier run on the cluster
//	E2E_ARTIFACTS=folder  where a failed step leaves what is needed to understand it (artifacts/e2e)
//	HPP_E2E=nightly       run the features too that are too slow for every change; else they are named at the end
//
// Features that disturb the whole cluster come first, one after the other, in the order of their files' names; those
// that call parallel share it afterwards, three at a time.
//
// A change of the release takes half a minute. It is made when a feature begins that expects another one (alone and
// parallel want the driver of plain; those that call replacing make what they want), and features that want the same
// lie in files with names next to each other: what installs on an empty cluster, then most, then operator*_test.go.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/e2e-framework/pkg/env"
	"sigs.k8s.io/e2e-framework/pkg/envconf"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

// ownCluster is the cluster that the suite makes for itself.
const ownCluster = "hpp-e2e"

// atOnce is how many parallel features run together: they mostly wait, but
// the machine may have two cores for three nodes.
const atOnce = "3"

// options are what the environment says about a run.
type options struct {
	cluster   string // name of a cluster that is there; empty makes one
	keep      bool
	nightly   bool     // run what is too slow for every change
	images    []string // that are to be pushed; none means all
	artifacts string   // absolute
}

func optionsFromEnvironment() (options, error) {
	o := options{
		cluster: os.Getenv("E2E_CLUSTER"), keep: os.Getenv("E2E_KEEP") != "", artifacts: os.Getenv("E2E_ARTIFACTS"),
	}
	switch runs := os.Getenv("HPP_E2E"); runs {
	case "":
	case "nightly":
		o.nightly = true
	default:
		return o, fmt.Errorf("HPP_E2E is %q: want nightly, or nothing", runs)
	}
	if names := os.Getenv("E2E_IMAGES"); names != "" {
		o.images = strings.Split(names, ",")
	}
	for _, name := range o.images {
		if !slices.Contains(product.Names(), name) {
			return o, fmt.Errorf("E2E_IMAGES names %q: want some of %s", name, strings.Join(product.Names(), ","))
		}
	}
	if o.artifacts == "" {
		o.artifacts = filepath.Join("..", "..", "artifacts", "e2e")
	}
	var err error
	o.artifacts, err = filepath.Abs(o.artifacts)
	return o, err
}

// world is what TestMain sets up and the tests use.
var world *suite //nolint:gochecknoglobals // TestMain has no other way to hand something to tests; only it writes this

func TestMain(m *testing.M) {
	// A TestMain that does not exit with the framework's code turns a failed setup green.
	os.Exit(runSuite(m))
}

func runSuite(m *testing.M) int {
	// A value given on the command line comes later and wins.
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" { // a set-up would end the run that has the cluster
		return m.Run()
	}
	o, err := optionsFromEnvironment()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	cfg := envconf.New()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	world = &suite{options: o, env: env.NewWithConfig(cfg), root: root, until: nearlyOver(time.Now())}
	world.env.Setup(world.setUp)
	world.env.Finish(world.tearDown)
	code := world.env.Run(m)
	if len(world.leftForTheNight) > 0 {
		fmt.Fprintf(os.Stderr, "e2e: not run, but every night (make e2e-nightly): %s\n",
			strings.Join(world.leftForTheNight, ", "))
	}
	// The framework keeps the errors of Finish to itself.
	if world.leftBehind != nil {
		fmt.Fprintln(os.Stderr, "e2e: cleaning up failed:", world.leftBehind)
		return max(code, 1)
	}
	return code
}

// spare is what collecting artifacts and cleaning up may take at the end of a run.
const spare = 6 * time.Minute

// nearlyOver is when what is under way has to fail, so that it leaves artifacts and cleans up: when the time of go test
// is over, nothing can do either. That time counts from the start, setting up included.
func nearlyOver(start time.Time) time.Time {
	timeout, ok := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration)
	if !ok || timeout == 0 {
		return start.AddDate(1, 0, 0)
	}
	return start.Add(timeout - min(spare, timeout/4))
}

// inTime is a test's context, which ends before the run does.
func (s *suite) inTime(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), s.until)
	t.Cleanup(cancel)
	return ctx
}

// setUp brings up cluster and images; the release comes with the first feature that wants one. What goes wrong leaves
// the same artifacts as a failed step.
func (s *suite) setUp(ctx context.Context, cfg *envconf.Config) (context.Context, error) {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"cluster", s.begin},
		{"images", s.pushImages},
		{"nodes", s.prepareNodes},
		{"helm", s.findHelm},
	} {
		fmt.Fprintf(os.Stderr, "e2e: set up: %s\n", step.name)
		brief, cancel := context.WithDeadline(ctx, s.until)
		err := step.do(brief)
		cancel()
		if err != nil {
			s.collect(ctx, "setup", step.name, "")
			fmt.Fprintf(os.Stderr, "e2e: set up: %s: %v\n", step.name, err)
			return ctx, err
		}
	}
	cfg.WithKubeconfigFile(s.cluster.Kubeconfig())
	return ctx, nil
}
