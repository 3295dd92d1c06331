package helmcli

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startTimeout is for a machine that compiles meanwhile. Nothing is said about speed by it.
const startTimeout = 3 * time.Minute

// StartAPIServer runs the environment's kube-apiserver and etcd until the test ends. It knows no foreign kinds yet.
func StartAPIServer(t *testing.T, environment *envtest.Environment) *rest.Config {
	t.Helper()
	environment.BinaryAssetsDirectory = Assets(t)
	environment.ControlPlaneStartTimeout = startTimeout
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stop kube-apiserver and etcd: %v", err)
		}
	})
	config, err := environment.Start()
	if config == nil && errors.Is(err, context.DeadlineExceeded) { // envtest gives the first namespace five seconds
		config = environment.Config
		err = awaitDefaultNamespace(t.Context(), config, environment.Scheme)
	}
	if err != nil {
		t.Fatalf("start kube-apiserver and etcd: %v", err)
	}
	return config
}

func awaitDefaultNamespace(ctx context.Context, config *rest.Config, scheme *runtime.Scheme) error {
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	isThere := func(ctx context.Context) (bool, error) {
		return c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceDefault}, &corev1.Namespace{}) == nil, nil
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, startTimeout, true, isThere)
}

// InstallKinds adds the CustomResourceDefinitions in those files.
func InstallKinds(t *testing.T, config *rest.Config, scheme *runtime.Scheme, files ...string) {
	t.Helper()
	options := envtest.CRDInstallOptions{Scheme: scheme, Paths: files, ErrorIfPathMissing: true, MaxTime: startTimeout}
	if _, err := envtest.InstallCRDs(config, options); err != nil {
		t.Fatalf("install %v: %v", files, err)
	}
}
