package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/e2e-framework/pkg/env"
	"sigs.k8s.io/e2e-framework/pkg/envconf"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/provide"
)

const (
	driverName  = "kubevirt.io.hostpath-provisioner"
	topologyKey = "topology.hostpath.csi/node"
	release     = "hpp"
	// fullName is the prefix of the release's object names.
	fullName  = release + "-hostpath-provisioner"
	namespace = "hostpath-provisioner"
	stateDir  = "/var/lib/hostpath-provisioner-state"
	// driverContainer is the driver in the DaemonSet's pods and in the controller's.
	driverContainer = "driver"
	// The label that tells the release's pods apart, and two of its values.
	componentLabel      = "app.kubernetes.io/component"
	nodeComponent       = "csi-driver"
	controllerComponent = "csi-controller"
	// imageTag keeps the images of this run apart from those of `make up`. It is the programs' version too, which the
	// operator compares.
	imageTag   = "0.2.0-e2e"
	repository = "ghcr.io/hostpath-provisioner/"
)

// suite is the cluster under test and what is known about it.
type suite struct {
	options
	env     env.Environment
	cluster *kindcluster.Cluster
	nodes   []string // all of them, by name
	// workers are the nodes that ordinary pods run on; there are at least two.
	workers []string
	digests map[string]string // of the images pushed, by name
	helm    string            // path of the helm command
	root    string            // of the repository

	until time.Time // when what is still under way fails

	leftBehind error
	// leftForTheNight are the tests that this run leaves out.
	leftForTheNight []string
}

func (s *suite) openCluster(ctx context.Context) error {
	var err error
	if s.root, err = filepath.Abs(filepath.Join("..", "..")); err != nil {
		return err
	}
	open := s.makeCluster
	if s.options.cluster != "" {
		open = func(ctx context.Context) (*kindcluster.Cluster, error) {
			return kindcluster.Open(ctx, s.options.cluster)
		}
	}
	c, err := open(ctx)
	if err != nil {
		return err
	}
	s.cluster = c
	if err := s.learnNodes(ctx); err != nil {
		return err
	}
	if len(s.workers) < 2 {
		return fmt.Errorf("cluster %s has %d workers; the features need two", s.cluster.Name(), len(s.workers))
	}
	return nil
}

func (s *suite) learnNodes(ctx context.Context) error {
	all, err := s.cluster.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, node := range all {
		s.nodes = append(s.nodes, node.Name)
		if !node.ControlPlane {
			s.workers = append(s.workers, node.Name)
		}
	}
	return nil
}

// makeCluster makes the suite's own cluster, from scratch unless it is kept
// between runs. One that does not come up is there to be looked at until
// tearDown removes it.
func (s *suite) makeCluster(ctx context.Context) (*kindcluster.Cluster, error) {
	if !s.keep {
		if err := kindcluster.Delete(ctx, ownCluster); err != nil {
			return nil, err
		}
	}
	c, err := kindcluster.Create(ctx, kindcluster.Options{Name: ownCluster, Workers: 2, Out: os.Stderr})
	if err == nil {
		return c, nil
	}
	if broken, openErr := kindcluster.Open(ctx, ownCluster); openErr == nil {
		s.cluster = broken
		err = errors.Join(err, s.learnNodes(ctx))
	}
	return nil, err
}

func (s *suite) pushImages(ctx context.Context) error {
	var err error
	if s.digests, err = s.cluster.PushProduct(ctx, imageTag); err != nil {
		return err
	}
	return provide.Sidecars(ctx, s.cluster)
}

// image is the full name of one of this repository's images.
func (s *suite) image(name string) string {
	return repository + name + ":" + imageTag + "@" + s.digests[name]
}

// prepareNodes makes what has to be there before the driver first starts: the
// directory that a symbolic link stands for. It also undoes what an earlier
// run that was cut short may have left mounted.
func (s *suite) prepareNodes(ctx context.Context) error {
	var mountable []string
	for _, p := range basePools() {
		mountable = append(mountable, p.Path)
	}
	script := "mkdir -p " + base + " " + linkTarget + " " + disks + "\n" +
		"ln -sfn " + linkTarget + " " + pathOf(poolLinked) + "\n" +
		"for p in " + strings.Join(mountable, " ") + "; do " + unmounted("$p") + "done\n" +
		// Only those loop devices that were there when the container was made have a name in it.
		"[ -c /dev/loop-control ] || mknod /dev/loop-control c 10 237\n" +
		"for i in $(seq 0 63); do [ -b /dev/loop$i ] || mknod /dev/loop$i b 7 $i; done\n"
	var errs []error
	for _, node := range s.nodes {
		_, err := s.cluster.NodeExec(ctx, node, "sh", "-ec", script)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// tearDown removes the cluster, unless it was there before or is to be kept.
func (s *suite) tearDown(ctx context.Context, _ *envconf.Config) (context.Context, error) {
	if s.options.cluster == "" && !s.keep {
		s.leftBehind = kindcluster.Delete(ctx, ownCluster)
	}
	return ctx, s.leftBehind
}

// otherThan lists the nodes but one.
func (s *suite) otherThan(node string) []string {
	return slices.DeleteFunc(slices.Clone(s.nodes), func(n string) bool { return n == node })
}
