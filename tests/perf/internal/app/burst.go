package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/localpath"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/burst"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/ceiling"
)

const (
	// ownCluster is the cluster that is made and removed when none is named.
	ownCluster = "hpp-perf"
	// driverName is the driver's default name, by which its class is found.
	driverName = "kubevirt.io.hostpath-provisioner"
	// nodeLabels and controllerLabels find its DaemonSet and its Deployment.
	nodeLabels       = "app.kubernetes.io/name=hostpath-provisioner,app.kubernetes.io/component=csi-driver"
	controllerLabels = "app.kubernetes.io/name=hostpath-provisioner,app.kubernetes.io/component=csi-controller"
	// provisioner is its container, and the process in it.
	provisioner = "csi-provisioner"
	// podVersion is the tag of the image that the pods run: pushed anew, whatever the chart uses.
	podVersion = "perf"
)

// burst measures every system in one cluster, one after the other.
func (s *session) burst(ctx context.Context) (err error) {
	name := s.cluster
	if name == "" {
		name = ownCluster
		if !s.keep {
			defer func() { err = errors.Join(err, kindcluster.Delete(context.WithoutCancel(ctx), name)) }()
		}
		if err := s.makeCluster(ctx, name); err != nil {
			return err
		}
	}
	c, err := kindcluster.Open(ctx, name)
	if err != nil {
		return err
	}
	client, err := connect(c.Kubeconfig())
	if err != nil {
		return err
	}
	found, err := findOurs(ctx, client)
	if err != nil {
		return err
	}
	s.log("build and push the pods' image")
	if _, err := c.PushProduct(ctx, podVersion, "selftest"); err != nil {
		return err
	}
	o := burst.Options{
		Client: client, Claims: s.claims, Image: "ghcr.io/hostpath-provisioner/selftest:" + podVersion, Log: s.log,
		Memory: func(ctx context.Context, names []string) (burst.Memory, error) {
			nodes, err := c.Workers(ctx)
			if err != nil {
				return nil, err
			}
			return burst.ReadMemory(ctx, nodes, names, c.NodeExec)
		},
	}
	outcome, err := burst.Run(ctx, o, found.system)
	if err != nil {
		return err
	}
	others, err := s.others(ctx, c, o, found.provisioner)
	if err != nil {
		return err
	}
	s.addBurst(outcome, others)
	return nil
}

// others measures what ours is compared with.
func (s *session) others(
	ctx context.Context, c *kindcluster.Cluster, o burst.Options, image string,
) ([]burst.Outcome, error) {
	var all []burst.Outcome
	for _, system := range s.systems {
		var other burst.Outcome
		var err error
		switch system {
		case burst.LocalPath:
			other, err = s.peer(ctx, c, o)
		case burst.Ceiling:
			other, err = s.ceiling(ctx, c, o, image)
		default: // -systems ""
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, other)
	}
	return all, nil
}

// peer measures local-path.
func (s *session) peer(ctx context.Context, c *kindcluster.Cluster, o burst.Options) (_ burst.Outcome, err error) {
	s.log("build and install local-path %s", localpath.Version)
	defer func() { err = errors.Join(err, localpath.Remove(ctx, c)) }()
	if err := localpath.Install(ctx, c); err != nil {
		return burst.Outcome{}, err
	}
	return burst.Run(ctx, o, burst.System{
		Name: burst.LocalPath, Class: localpath.Class, Namespace: localpath.Namespace,
		Accounts: []string{localpath.Account}, Processes: []string{"local-path-prov"},
	})
}

// ceiling measures a driver that does nothing, with an image of csi-provisioner.
func (s *session) ceiling(
	ctx context.Context, c *kindcluster.Cluster, o burst.Options, image string,
) (_ burst.Outcome, err error) {
	s.log("build and install a driver that does nothing")
	defer func() { err = errors.Join(err, ceiling.Remove(ctx, c)) }()
	if err := ceiling.Install(ctx, c, o.Client, image, filepath.Join(s.root, "tests")); err != nil {
		return burst.Outcome{}, err
	}
	return burst.Run(ctx, o, ceiling.System())
}

func (s *session) addBurst(ours burst.Outcome, others []burst.Outcome) {
	all := append([]burst.Outcome{ours}, others...)
	s.report.Sections = append(s.report.Sections, burst.Against(ours, others))
	for _, o := range all {
		s.report.Sections = append(s.report.Sections, o.Section())
	}
	s.report.Panels = append(s.report.Panels, burst.Panels(all)...)
	s.report.Notes = append(s.report.Notes,
		"API requests are counted exactly by the API server itself: a FlowSchema for each provisioner's ServiceAccounts and "+
			"kind of object, and the metric apiserver_flowcontrol_dispatched_requests_total. Ours are the accounts of the "+
			"nodes and of the controller, its sidecars included. What the kubelet, scheduler and controller manager send for "+
			"local-path's helper pods is not in its figure.",
		"ceiling is a driver that does nothing, with a csi-provisioner on every node: what is left of its times is "+
			"Kubernetes' own. Our idle driver runs beside it, and local-path's.",
		fmt.Sprintf("Memory is VmRSS while all %d pods run, on the node where it is most.", s.claims))
}

// makeCluster does what `make up` does, without the demo and without touching the user's kubeconfig.
func (s *session) makeCluster(ctx context.Context, name string) error {
	dir, err := os.MkdirTemp("", "hpp-perf-kubeconfig-")
	if err != nil {
		return fmt.Errorf("make a folder for the cluster's kubeconfig: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s.log("make cluster %s and install the chart", name)
	cmd := exec.CommandContext(ctx, "go", "run", "./cluster", "up", "--name", name, "--demo=false")
	cmd.Dir = filepath.Join(s.root, "tests")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "config"))
	cmd.Stdout, cmd.Stderr = s.stderr, s.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make cluster %s: %w", name, err)
	}
	return nil
}

// connect gives a client that does not throttle itself.
func connect(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the access to the cluster: %w", err)
	}
	config.QPS, config.Burst = 500, 1000
	return kubernetes.NewForConfig(config)
}

// ours is the installed driver.
type ours struct {
	system burst.System
	// provisioner is the image of its csi-provisioner.
	provisioner string
}

func findOurs(ctx context.Context, client kubernetes.Interface) (ours, error) {
	sets, err := client.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{LabelSelector: nodeLabels})
	if err != nil {
		return ours{}, fmt.Errorf("look for the driver: %w", err)
	}
	controllers, err := client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{LabelSelector: controllerLabels})
	if err != nil {
		return ours{}, fmt.Errorf("look for the driver's controller: %w", err)
	}
	classes, err := client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return ours{}, fmt.Errorf("look for the driver's class: %w", err)
	}
	return choose(sets.Items, controllers.Items, classes.Items)
}

func choose(
	sets []appsv1.DaemonSet, controllers []appsv1.Deployment, classes []storagev1.StorageClass,
) (ours, error) {
	if len(sets) != 1 || len(controllers) != 1 {
		return ours{}, fmt.Errorf("the cluster has %d DaemonSets with labels %s and %d Deployments with %s: install the "+
			"chart once", len(sets), nodeLabels, len(controllers), controllerLabels)
	}
	node, controller := sets[0].Spec.Template.Spec, controllers[0].Spec.Template.Spec
	sidecar := slices.IndexFunc(controller.Containers, func(c corev1.Container) bool { return c.Name == provisioner })
	if sidecar < 0 {
		return ours{}, fmt.Errorf("the driver's Deployment %s has no container %s", controllers[0].Name, provisioner)
	}
	class := slices.IndexFunc(classes, func(class storagev1.StorageClass) bool {
		return class.Provisioner == driverName && class.VolumeBindingMode != nil &&
			*class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	})
	if class < 0 {
		return ours{}, fmt.Errorf("the cluster has no StorageClass of %s with WaitForFirstConsumer", driverName)
	}
	return ours{
		system: burst.System{
			Name: "ours", Class: classes[class].Name, Namespace: sets[0].Namespace,
			Accounts:  []string{node.ServiceAccountName, controller.ServiceAccountName},
			Processes: []string{"driver", provisioner, "csi-resizer"}, Central: provisioner,
		},
		provisioner: controller.Containers[sidecar].Image,
	}, nil
}
