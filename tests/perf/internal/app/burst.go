package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
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
	// driverLabels find its DaemonSet.
	driverLabels = "app.kubernetes.io/name=hostpath-provisioner,app.kubernetes.io/component=csi-driver"
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
	ours, set, err := findOurs(ctx, client)
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
	outcome, err := burst.Run(ctx, o, ours)
	if err != nil {
		return err
	}
	others, err := s.others(ctx, c, o, set)
	if err != nil {
		return err
	}
	s.addBurst(outcome, others)
	return nil
}

// others measures what ours is compared with.
func (s *session) others(
	ctx context.Context, c *kindcluster.Cluster, o burst.Options, set *appsv1.DaemonSet,
) ([]burst.Outcome, error) {
	var all []burst.Outcome
	for _, system := range s.systems {
		var other burst.Outcome
		var err error
		switch system {
		case burst.LocalPath:
			other, err = s.peer(ctx, c, o)
		case burst.Ceiling:
			other, err = s.ceiling(ctx, c, o, set)
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
		Name: burst.LocalPath, Class: localpath.Class, Namespace: localpath.Namespace, Account: localpath.Account,
		Processes: []string{"local-path-prov"},
	})
}

// ceiling measures a driver that does nothing.
func (s *session) ceiling(
	ctx context.Context, c *kindcluster.Cluster, o burst.Options, set *appsv1.DaemonSet,
) (_ burst.Outcome, err error) {
	s.log("build and install a driver that does nothing")
	k, err := ceiling.Install(ctx, c, o.Client, set, filepath.Join(s.root, "tests"))
	if err != nil {
		return burst.Outcome{}, err
	}
	defer func() { err = errors.Join(err, k.Remove(ctx)) }()
	return burst.Run(ctx, o, k.System())
}

func (s *session) addBurst(ours burst.Outcome, others []burst.Outcome) {
	all := append([]burst.Outcome{ours}, others...)
	s.report.Sections = append(s.report.Sections, burst.Against(ours, others))
	for _, o := range all {
		s.report.Sections = append(s.report.Sections, o.Section())
	}
	s.report.Panels = append(s.report.Panels, burst.Panels(all)...)
	s.report.Notes = append(s.report.Notes,
		"API requests are counted exactly by the API server itself: a FlowSchema for each provisioner's ServiceAccount and "+
			"kind of object, and the metric apiserver_flowcontrol_dispatched_requests_total. Our driver and csi-provisioner "+
			"share one account, so both are in the figure. What the kubelet, scheduler and controller manager send for "+
			"local-path's helper pods is not in its figure. The ceiling shares the account too, so its figure holds the idle "+
			"requests of the real driver's sidecar.",
		"ceiling is a driver that does nothing, in a copy of our DaemonSet: what is left of its times is Kubernetes' own.",
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

// findOurs finds the installed driver: its account and its class.
func findOurs(ctx context.Context, client kubernetes.Interface) (burst.System, *appsv1.DaemonSet, error) {
	sets, err := client.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: driverLabels})
	if err != nil {
		return burst.System{}, nil, fmt.Errorf("look for the driver: %w", err)
	}
	classes, err := client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return burst.System{}, nil, fmt.Errorf("look for the driver's class: %w", err)
	}
	return choose(sets.Items, classes.Items)
}

func choose(sets []appsv1.DaemonSet, classes []storagev1.StorageClass) (burst.System, *appsv1.DaemonSet, error) {
	if len(sets) != 1 {
		return burst.System{}, nil, fmt.Errorf("the cluster has %d DaemonSets with labels %s: install the chart once",
			len(sets), driverLabels)
	}
	for _, class := range classes {
		late := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
		if class.Provisioner == driverName && late {
			return burst.System{
				Name: "ours", Class: class.Name, Namespace: sets[0].Namespace,
				Account:   sets[0].Spec.Template.Spec.ServiceAccountName,
				Processes: []string{"driver", "csi-provisioner"},
			}, &sets[0], nil
		}
	}
	return burst.System{}, nil, fmt.Errorf("the cluster has no StorageClass of %s with WaitForFirstConsumer", driverName)
}
