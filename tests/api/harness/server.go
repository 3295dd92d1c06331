// Package harness runs a real kube-apiserver, etcd and kube-controller-manager, installs the chart into them
// with Helm, and runs the built binaries against them as the accounts that the chart makes: what is tested is
// what is shipped, its rights included.
//
// What only nodes can do is played by Nodes: there is no scheduler and no kubelet.
package harness

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// Namespace is where the chart is installed, Release the release's name.
const (
	Namespace = helmcli.Namespace
	Release   = helmcli.Release
)

// controllers are those of the controller manager without which deletion, DaemonSets and claims would
// stand still. Pods and Jobs are nobody's here, and neither are EndpointSlices: the operator's Service
// leads to a process on this machine.
const controllers = "garbage-collector-controller,daemonset-controller,persistentvolume-binder-controller," +
	"persistentvolume-protection-controller,persistentvolumeclaim-protection-controller"

// Server is a running control plane without nodes.
type Server struct {
	// Client may do everything and reads without a cache.
	Client client.Client
	// Config is what Client was made with.
	Config *rest.Config
	// Kubeconfig is the path of a file with the same rights.
	Kubeconfig string
	// Host is an address of this machine that an EndpointSlice may name: not a loopback one.
	Host string

	dir    string // scratch, gone with the test
	scheme *runtime.Scheme
}

// Start runs the control plane until the test ends. It knows no foreign kinds yet, and not the chart's own. The flags,
// as name=value, are the API server's.
func Start(t *testing.T, flags ...string) *Server {
	t.Helper()
	assets := helmcli.Assets(t)
	environment := &envtest.Environment{Scheme: scheme(t)}
	// Services of webhooks are resolved here, through their EndpointSlices: no kube-proxy would do it.
	for _, flag := range append(flags, "enable-aggregator-routing=true") {
		name, value, _ := strings.Cut(flag, "=")
		environment.ControlPlane.GetAPIServer().Configure().Append(name, value)
	}
	config := helmcli.StartAPIServer(t, environment)
	// The tests' own pace is nobody's subject.
	config.QPS, config.Burst = 200, 400
	config.WarningHandler = rest.NoWarnings{}
	s := &Server{
		Config: config, Host: hostAddress(t), dir: t.TempDir(), scheme: environment.Scheme,
	}
	var err error
	if s.Client, err = client.New(config, client.Options{Scheme: environment.Scheme}); err != nil {
		t.Fatal(err)
	}
	s.Kubeconfig = filepath.Join(s.dir, "kubeconfig")
	if err := os.WriteFile(s.Kubeconfig, environment.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}})
	s.Run(t, filepath.Join(assets, "kube-controller-manager"), nil, "--kubeconfig="+s.Kubeconfig,
		"--controllers="+controllers,
		"--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=false",
		"--pvclaimbinder-sync-period=1s")
	return s
}

// Kinds adds the CustomResourceDefinitions in those files.
func (s *Server) Kinds(t *testing.T, files ...string) {
	t.Helper()
	helmcli.InstallKinds(t, s.Config, s.scheme, files...)
}

// OwnKinds is the file with this project's CustomResourceDefinition, as the operator carries it.
func OwnKinds(t *testing.T) string {
	t.Helper()
	return filepath.Join(helmcli.ChartDir(t), "files", "crd.yaml")
}

// scheme knows what the chart renders and what the operator reads.
func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	all := helmcli.Scheme(t)
	if err := errors.Join(v1beta1.AddToScheme(all), configv1.Install(all),
		apiextensionsv1.AddToScheme(all)); err != nil {
		t.Fatal(err)
	}
	return all
}

func hostAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		prefix, ok := address.(*net.IPNet)
		if ok && prefix.IP.To4() != nil && prefix.IP.IsGlobalUnicast() {
			return prefix.IP.String()
		}
	}
	t.Fatalf("this machine has only %v: an EndpointSlice, through which the API server finds the webhook, needs an "+
		"IPv4 address that is no loopback one; `ip link add hpp type dummy && ip addr add 192.0.2.1/32 dev "+
		"hpp` gives it one",
		addresses)
	return ""
}

// Seed is a resource as the predecessor's documentation prints it.
func Seed(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(helmcli.Root(t), "tests", "e2e", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
