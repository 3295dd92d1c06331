package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/crane"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/e2e-framework/klient/conf"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
	"sigs.k8s.io/e2e-framework/pkg/env"
	"sigs.k8s.io/e2e-framework/pkg/envconf"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/provide"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

const (
	driverName  = "kubevirt.io.hostpath-provisioner"
	topologyKey = "topology.hostpath.csi/node"
	release     = "hpp"
	// fullName is the prefix of the release's object names.
	fullName  = release + "-hostpath-provisioner"
	namespace = "hostpath-provisioner"
	stateDir  = "/var/lib/hostpath-provisioner-state"
	// driverContainer is in the DaemonSet's pods, controllerContainer in the controller's; each is called as its
	// program.
	driverContainer     = "driver"
	controllerContainer = "controller"
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
	workers    []string
	built      []product.Built   // the images to push
	digests    map[string]string // of the images pushed, by name
	helm       string            // path of the helm command
	pluginFile string            // path of kubectl-hpp
	root       string            // of the repository
	// api is the API server, for all features; calls are what it does not offer: logs and raw paths.
	api   *resources.Resources
	calls kubernetes.Interface

	releasing sync.Mutex
	shared    bool  // the release, by features that run beside each other
	unusable  error // why there is no release for the features

	until time.Time // when what is still under way fails

	leftBehind error
	// leftForTheNight are the tests that this run leaves out.
	leftForTheNight []string
}

// begin opens or makes the cluster, which is mostly waiting, and builds the images meanwhile.
func (s *suite) begin(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.openCluster(ctx) })
	group.Go(func() (err error) {
		s.built, err = kindcluster.BuildProduct(ctx, imageTag, s.images...)
		return err
	})
	group.Go(func() error { return s.buildPlugin(ctx) })
	return group.Wait()
}

func (s *suite) openCluster(ctx context.Context) error {
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
	return s.connect()
}

// connect makes the clients of the API server. client-go's own limit of 5 requests a second would be what the features
// measure.
func (s *suite) connect() error {
	config, err := conf.New(s.cluster.Kubeconfig())
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	if s.api, err = resources.New(config); err != nil {
		return err
	}
	s.calls, err = kubernetes.NewForConfig(config)
	return err
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

// pushImages pushes the images, all of them or those in E2E_IMAGES. The others are taken as an earlier run has left
// them.
func (s *suite) pushImages(ctx context.Context) error {
	var err error
	if s.digests, err = s.cluster.PushBuilt(ctx, imageTag, s.built); err != nil {
		return err
	}
	address, err := s.cluster.Registry(ctx)
	if err != nil {
		return err
	}
	for _, name := range product.Names() {
		if s.digests[name] != "" {
			continue
		}
		image := address + "/hostpath-provisioner/" + name + ":" + imageTag
		if s.digests[name], err = crane.Digest(image, crane.WithContext(ctx)); err != nil {
			return fmt.Errorf("take image %s as it was pushed earlier (without E2E_IMAGES all are pushed): %w", name,
				err)
		}
	}
	if len(s.images) > 0 {
		return nil // the sidecars are there too, then
	}
	if err := provide.Sidecars(ctx, s.cluster); err != nil {
		return err
	}
	return provide.Snapshots(ctx, s.cluster)
}

// findHelm is a step of its own, for Helm may have to be compiled.
func (s *suite) findHelm(ctx context.Context) (err error) {
	s.helm, err = provide.Helm(ctx, s.cluster)
	return err
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
		"for p in " + strings.Join(mountable, " ") + "; do " + unmounted("$p") + "done\n" + kindcluster.LoopDevices
	return s.onEveryNode(ctx, script)
}

// onEveryNode runs a shell script on each node, on all of them at the same time.
func (s *suite) onEveryNode(ctx context.Context, script string) error {
	var group errgroup.Group
	for _, node := range s.nodes {
		group.Go(func() error {
			_, err := s.cluster.NodeExec(ctx, node, "sh", "-ec", script)
			return err
		})
	}
	return group.Wait()
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
