package remote

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
)

// container is the controller's in its pod.
const container = "controller"

// New gives a controller's pod, in which commands are run over a WebSocket, or over SPDY where something between here
// and the API server does not pass that on, as kubectl does.
func New(config *rest.Config, api kubernetes.Interface, at cluster.Controller, version string) *Controller {
	c := &Controller{At: at, Version: version}
	c.Find = func(ctx context.Context) (cluster.Controller, error) {
		return cluster.FindController(ctx, api, at.Namespace, at.Driver)
	}
	c.Exec = func(ctx context.Context, command []string) (stdout, stderr []byte, err error) {
		executor, err := executorFor(config, api, c.pod(), command)
		if err != nil {
			return nil, nil, err
		}
		var out, problems bytes.Buffer
		err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &problems})
		return out.Bytes(), problems.Bytes(), err
	}
	return c
}

func executorFor(
	config *rest.Config, api kubernetes.Interface, at cluster.Controller, command []string,
) (remotecommand.Executor, error) {
	request := api.CoreV1().RESTClient().Post().Resource("pods").Namespace(at.Namespace).Name(at.Pod).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: container, Command: command, Stdout: true, Stderr: true,
	}, scheme.ParameterCodec)
	first, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	if err != nil {
		return nil, fmt.Errorf("prepare a connection to pod %s/%s: %w", at.Namespace, at.Pod, err)
	}
	second, err := remotecommand.NewSPDYExecutor(config, "POST", request.URL())
	if err != nil {
		return nil, fmt.Errorf("prepare a connection to pod %s/%s: %w", at.Namespace, at.Pod, err)
	}
	return remotecommand.NewFallbackExecutor(first, second, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}
