package harness

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ControllerAudience is the audience of the token that the chart gives the driver's pods for the controller.
const ControllerAudience = "hostpath-provisioner-controller"

// Token makes a token of a ServiceAccount in Namespace for one audience, bound to a pod unless that is nil.
func (s *Server) Token(t *testing.T, account, audience string, pod *corev1.Pod) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}
	}
	who := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: account}}
	if err := s.Client.SubResource("token").Create(t.Context(), who, request); err != nil {
		t.Fatalf("token of ServiceAccount %s for %s: %v", account, audience, err)
	}
	return request.Status.Token
}

// APIToken makes a token of a ServiceAccount in Namespace for the API itself.
func (s *Server) APIToken(t *testing.T, account string) string {
	t.Helper()
	who := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: account}}
	request := &authenticationv1.TokenRequest{}
	if err := s.Client.SubResource("token").Create(t.Context(), who, request); err != nil {
		t.Fatalf("token of ServiceAccount %s: %v", account, err)
	}
	return request.Status.Token
}

// KubeconfigOf writes a kubeconfig with a token of a ServiceAccount in Namespace.
func (s *Server) KubeconfigOf(t *testing.T, account string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["server"] = &clientcmdapi.Cluster{Server: s.Config.Host, CertificateAuthorityData: s.Config.CAData}
	config.AuthInfos[account] = &clientcmdapi.AuthInfo{Token: s.APIToken(t, account)}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "server", AuthInfo: account, Namespace: Namespace}
	config.CurrentContext = "test"
	path := filepath.Join(s.dir, account+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// ClientOf has the rights of a kubeconfig.
func (*Server) ClientOf(t *testing.T, kubeconfig string) client.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// PodAccount makes what the kubelet gives a pod of a ServiceAccount in Namespace: a directory with a token and the
// authorities of the API, and the environment that says where the API is.
func (s *Server) PodAccount(t *testing.T, account string) (dir string, environment []string) {
	t.Helper()
	dir = t.TempDir()
	_, address, found := strings.Cut(s.Config.Host, "://")
	if !found {
		address = s.Config.Host
	}
	host, port, addressErr := net.SplitHostPort(strings.TrimSuffix(address, "/"))
	err := errors.Join(
		addressErr, os.WriteFile(filepath.Join(dir, "token"), []byte(s.APIToken(t, account)), 0o600),
		os.WriteFile(filepath.Join(dir, "ca.crt"), s.Config.CAData, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return dir, []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
}

// Denied expects that an admission policy refuses with a sentence.
func Denied(t *testing.T, what string, err error, want string) {
	t.Helper()
	if !strings.HasSuffix(fmt.Sprint(err), "denied request: "+want) {
		t.Errorf("%s: error %v, want: %s", what, err, want)
	}
}
