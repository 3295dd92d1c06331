package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/kindcluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/burst"
)

// raisedQPS is how many requests a second the control plane may send where it shall not be what a burst waits for.
const raisedQPS = 200

// addRates puts two flags after the name of the program, $1, in kubeadm's manifest of it. The kubelet starts it anew.
const addRates = `manifest=/etc/kubernetes/manifests/$1.yaml
grep -q kube-api-qps "$manifest" && exit
sed "s/^\( *- \)$1\$/&\n\1--kube-api-qps=$2\n\1--kube-api-burst=$((2 * $2))/" "$manifest" >"/tmp/$1.yaml"
cp "/tmp/$1.yaml" "$manifest"`

// raise raises the request rates of the controller manager and the scheduler, and waits until both run with them.
func raise(ctx context.Context, c *kindcluster.Cluster, client kubernetes.Interface) error {
	flag := fmt.Sprintf("--kube-api-qps=%d", raisedQPS)
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		node := c.Name() + "-control-plane"
		_, err := c.NodeExec(ctx, node, "sh", "-ec", addRates, "sh", name, fmt.Sprint(raisedQPS))
		if err != nil {
			return fmt.Errorf("raise the request rates of %s: %w", name, err)
		}
		err = wait.PollUntilContextTimeout(ctx, time.Second, 3*time.Minute, true,
			func(ctx context.Context) (bool, error) {
				pod, err := client.CoreV1().Pods("kube-system").Get(ctx, name+"-"+node, metav1.GetOptions{})
				if err != nil {
					return false, nil //nolint:nilerr // while the pod is made anew there is none
				}
				return slices.Contains(pod.Spec.Containers[0].Command, flag) && ready(pod), nil
			})
		if err != nil {
			return fmt.Errorf("wait until %s runs with %s: %w", name, flag, err)
		}
	}
	return nil
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// saveProfiles keeps what the API server, and csi-provisioner where the system has a single one, do in half a minute.
func saveProfiles(ctx context.Context, client kubernetes.Interface, of burst.System, dir string) error {
	core := client.CoreV1().RESTClient()
	requests := map[string]*rest.Request{"apiserver": core.Get().AbsPath("/debug/pprof/profile")}
	if of.Central != "" {
		pods, err := client.CoreV1().Pods(of.Namespace).List(ctx, metav1.ListOptions{LabelSelector: controllerLabels})
		if err != nil || len(pods.Items) == 0 {
			return fmt.Errorf("%d pods with %s to profile: %w", len(pods.Items), controllerLabels, err)
		}
		requests[provisioner] = core.Get().Namespace(of.Namespace).Resource("pods").
			Name(fmt.Sprintf("%s:%d", pods.Items[0].Name, port(&pods.Items[0]))).SubResource("proxy").
			Suffix("debug", "pprof", "profile")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the report's folder (flag -out): %w", err)
	}
	var group errgroup.Group
	for name, request := range requests {
		group.Go(func() error {
			data, err := request.Param("seconds", "30").DoRaw(ctx)
			if err != nil {
				return fmt.Errorf("profile %s: %w", name, err)
			}
			return os.WriteFile(filepath.Join(dir, of.Name+"-"+name+".pprof"), data, 0o644)
		})
	}
	return group.Wait()
}

// port is where csi-provisioner serves metrics and, if it may, profiles.
func port(pod *corev1.Pod) int32 {
	for _, c := range pod.Spec.Containers {
		if c.Name == provisioner && len(c.Ports) > 0 {
			return c.Ports[0].ContainerPort
		}
	}
	return 0
}
