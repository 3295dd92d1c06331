package harness

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/process"
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

// Process is a program that runs beside the test.
type Process = process.Process

// Run is process.Run.
func (*Server) Run(t *testing.T, binary string, environment []string, args ...string) *Process {
	t.Helper()
	return process.Run(t, binary, environment, args...)
}

// Build is process.Build.
func (*Server) Build(t *testing.T, program string) string {
	t.Helper()
	return process.Build(t, program)
}
