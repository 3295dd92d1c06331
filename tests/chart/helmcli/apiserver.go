package helmcli

import (
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// StartAPIServer runs the environment's kube-apiserver and etcd until the test ends.
func StartAPIServer(t *testing.T, environment *envtest.Environment) *rest.Config {
	t.Helper()
	environment.BinaryAssetsDirectory = Assets(t)
	config, err := environment.Start()
	if err != nil {
		t.Fatalf("start kube-apiserver and etcd: %v", err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stop kube-apiserver and etcd: %v", err)
		}
	})
	return config
}
