// Command external runs Kubernetes' own tests of storage (External.Storage of e2e.test) against the driver as the chart
// installs it, on a kind cluster of its own, and counts what passed, failed and was skipped, and why. `make
// test-external` calls it; what the suite is told of the driver is in testdriver.yaml.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/install"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/cache"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/repo"
)

const (
	clusterName = "hpp-external"
	// poolPath is where values.yaml has the pool, and disk the node's file that is mounted there. Most of its size is
	// promised to volumes and never written.
	poolPath = "/var/lib/hpp-external"
	disk     = "/var/lib/hpp-external-disks/pool.img"
	diskSize = "32G"
)

type options struct {
	keep  bool
	procs int
	focus string
	out   string // the folder of the report and the logs, absolute
	root  string // of the repository
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "external:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	var o options
	flag.BoolVar(&o.keep, "keep", false, "take the cluster of an earlier run if it is there, and leave it")
	flag.IntVar(&o.procs, "procs", 4, "number of tests that run at a time; most of them wait")
	flag.StringVar(&o.focus, "focus", "External.Storage", "regular expression of the tests that are run")
	flag.StringVar(&o.out, "out", filepath.Join("..", "artifacts", "external"), "folder of the report and the logs")
	flag.Parse()
	if o.root, err = repo.Root(); err != nil {
		return err
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(o.out), os.MkdirAll(o.out, 0o755)); err != nil {
		return err
	}
	dir, err := cache.Open()
	if err != nil {
		return err
	}
	suite, err := fromsource.Program(ctx, dir, os.Stdout, fromsource.E2ESuite)
	if err != nil {
		return err
	}
	if !o.keep {
		if err := kindcluster.Delete(ctx, clusterName); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, kindcluster.Delete(context.WithoutCancel(ctx), clusterName)) }()
	}
	c, err := o.cluster(ctx, suite)
	if err == nil {
		err = o.test(ctx, c, suite)
	}
	if err != nil && c != nil {
		err = errors.Join(err, c.CollectLogs(filepath.Join(o.out, "cluster")))
	}
	return err
}

// cluster makes the cluster, with the disks of the pool, and installs the chart. It may return one with an error.
func (o options) cluster(ctx context.Context, suite string) (*kindcluster.Cluster, error) {
	chart := install.Options{
		Chart:  filepath.Join(o.root, "charts", "hostpath-provisioner"),
		Values: []string{filepath.Join(o.root, "tests", "external", "values.yaml")},
	}
	c, err := kindcluster.Create(ctx, kindcluster.Options{
		Name: clusterName, Workers: 2, MoreSteps: chart.Steps() + 2, Out: os.Stdout,
	})
	if err != nil {
		return nil, err
	}
	err = c.Printer().Step("a disk with btrfs on each node", 0, func(func(string)) error { return mountDisks(ctx, c) })
	if err != nil {
		return c, err
	}
	if err := fromsource.SuiteImages(ctx, c.Printer(), suite, c.PushImage); err != nil {
		return c, err
	}
	return c, install.Run(ctx, c, chart, os.Stdout)
}

// mountDisks mounts the disks that are not mounted.
func mountDisks(ctx context.Context, c *kindcluster.Cluster) error {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range nodes {
		group.Go(func() error {
			const prepare = kindcluster.LoopDevices + "mkdir -p " + poolPath + " $(dirname " + disk + ")\n" +
				"mountpoint -q " + poolPath + " && echo mounted || true"
			state, err := c.NodeExec(ctx, node.Name, "sh", "-ec", prepare)
			if err != nil || state != "" {
				return err
			}
			if err := c.CopyBtrfs(ctx, node.Name, disk, diskSize); err != nil {
				return err
			}
			_, err = c.NodeExec(ctx, node.Name, "mount", "-o", "loop", disk, poolPath)
			return err
		})
	}
	return group.Wait()
}

// test runs the suite and judges its report.
func (o options) test(ctx context.Context, c *kindcluster.Cluster, suite string) error {
	const report = "report.json"
	args := []string{
		"--procs=" + strconv.Itoa(o.procs), "--timeout=3h", "--focus=" + o.focus, "--no-color", "--silence-skips",
		"--poll-progress-after=5m", "--output-dir=" + o.out, "--json-report=" + report,
	}
	for _, s := range skips() {
		args = append(args, "--skip="+s.tests)
	}
	args = append(args, filepath.Join(suite, "e2e.test"), "--",
		"--provider=skeleton", "--kubeconfig="+c.Kubeconfig(), "--kubectl-path="+filepath.Join(suite, "kubectl"),
		"--storage.testdriver="+filepath.Join(o.root, "tests", "external", "testdriver.yaml"))
	cmd := exec.CommandContext(ctx, filepath.Join(suite, "ginkgo"), args...)
	// The suite then ends what it began, as after a person's Ctrl-C.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Minute
	cmd.Dir, cmd.Stdout, cmd.Stderr = o.out, os.Stdout, os.Stderr
	failure := cmd.Run()
	text, err := os.ReadFile(filepath.Join(o.out, report))
	if err != nil {
		return errors.Join(failure, err)
	}
	found, err := read(text)
	if err != nil {
		return errors.Join(failure, err)
	}
	fmt.Fprint(os.Stderr, found)
	if err := found.verdict(o.focus == flag.Lookup("focus").DefValue); err != nil {
		return fmt.Errorf("%w; what the suite printed is above, logs are in %s", err, o.out)
	}
	return failure
}
