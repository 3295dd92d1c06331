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
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
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
	podImage   = product.Repository + "/selftest:" + podVersion
)

// idleCluster is how many cores three nodes of kind and their control plane take while nothing happens.
const idleCluster = 0.6

// installed are systems in a cluster, ours first.
type installed struct {
	cluster *kindcluster.Cluster
	client  kubernetes.Interface
	systems []burst.System
}

// onCluster measures in the cluster that is named, or in one of its own, with other systems installed.
func (s *session) onCluster(
	ctx context.Context, others []string, measure func(context.Context, installed) error,
) (err error) {
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
	systems := []burst.System{found.system}
	for _, other := range others {
		switch other {
		case burst.LocalPath:
			s.log("build and install local-path %s", localpath.Version)
			defer func() { err = errors.Join(err, localpath.Remove(ctx, c)) }()
			err = localpath.Install(ctx, c)
			systems = append(systems, burst.System{
				Name: burst.LocalPath, Class: localpath.Class, Namespace: localpath.Namespace,
				Accounts: []string{localpath.Account}, Processes: []string{"local-path-prov"},
			})
		case burst.Ceiling:
			s.log("build and install a driver that only mounts")
			defer func() { err = errors.Join(err, ceiling.Remove(ctx, c)) }()
			err = ceiling.Install(ctx, c, client, found.provisioner, filepath.Join(s.root, "tests"))
			systems = append(systems, ceiling.System())
		}
		if err != nil {
			return err
		}
	}
	s.log("build and push the pods' image")
	if _, err := c.PushProduct(ctx, podVersion, "selftest"); err != nil {
		return err
	}
	return measure(ctx, installed{c, client, systems})
}

// burst lets all systems take turns.
func (s *session) burst(ctx context.Context) error {
	return s.onCluster(ctx, s.systems, s.measureBursts)
}

func (s *session) measureBursts(ctx context.Context, in installed) error {
	c, client := in.cluster, in.client
	o := burst.Options{
		Client: client, Claims: s.claims, Rounds: s.bursts, Image: podImage, Log: s.log,
		Memory: func(ctx context.Context, names []string) (burst.Memory, error) {
			nodes, err := c.Workers(ctx)
			if err != nil {
				return nil, err
			}
			return burst.ReadMemory(ctx, nodes, names, c.NodeExec)
		},
		Quiet: func(ctx context.Context, what string) error { return s.quiet(ctx, what, idleCluster) },
	}
	if s.profile {
		if err := raise(ctx, c, client); err != nil {
			return err
		}
		o.Beside = func(ctx context.Context, of burst.System) error { return saveProfiles(ctx, client, of, s.folder()) }
	}
	all, err := burst.Run(ctx, o, in.systems)
	if err != nil {
		return err
	}
	s.report.Sections = append(s.report.Sections, burst.Against(all[0], all[1:]))
	for _, outcome := range all {
		s.report.Sections = append(s.report.Sections, outcome.Section())
		s.report.Bench = append(s.report.Bench, outcome.Bench()...)
	}
	s.addNotes()
	return nil
}

// addNotes says what a reader of the bursts has to know.
func (s *session) addNotes() {
	s.report.Notes = append(s.report.Notes,
		"API requests are counted exactly by the API server itself: a FlowSchema for each provisioner's "+
			"ServiceAccounts and kind of object, and the metric apiserver_flowcontrol_dispatched_requests_total. "+
			"Ours are the accounts of the nodes and of the controller, its sidecars included. What the kubelet, "+
			"scheduler and controller manager send for local-path's helper pods is not in its figure.",
		"CPU is what the kubelets read in the cgroups, from some seconds before the first claim to some seconds "+
			"after the last volume was gone. Containers that ended meanwhile, as local-path's helper pods, are only "+
			"in \"all on the nodes\", and so are the other systems, which are installed all the time and idle.",
		fmt.Sprintf("Memory is VmRSS while all %d pods run, on the node where it is most.", s.claims))
	if s.profile {
		s.report.Notes = append(s.report.Notes, fmt.Sprintf("The controller manager and the scheduler might send %d "+
			"requests a second. `go tool pprof -top FILE.pprof` shows the profiles beside this report, of each "+
			"system's last burst.",
			raisedQPS))
	}
}

// makeCluster does what `make up` does, without the demo and without touching the user's kubeconfig.
func (s *session) makeCluster(ctx context.Context, name string) error {
	dir, err := os.MkdirTemp("", "hpp-perf-kubeconfig-")
	if err != nil {
		return fmt.Errorf("make a folder for the cluster's kubeconfig: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s.log("make cluster %s and install the chart", name)
	args := []string{"run", "./cluster", "up", "--name", name, "--demo=false"}
	if s.profile {
		values := filepath.Join(dir, "values.yaml")
		text := "sidecars:\n  provisioner:\n    extraArgs: [--enable-pprof]\n"
		if err := os.WriteFile(values, []byte(text), 0o600); err != nil {
			return fmt.Errorf("write values for the chart: %w", err)
		}
		args = append(args, "--values", values)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
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
		return ours{}, fmt.Errorf("the cluster has %d DaemonSets with labels %s and %d Deployments with %s: install "+
			"the chart once", len(sets), nodeLabels, len(controllers), controllerLabels)
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
			Processes: []string{"driver", "controller", provisioner, "csi-resizer"}, OnNodes: "driver",
			Central: provisioner,
		},
		provisioner: controller.Containers[sidecar].Image,
	}, nil
}
