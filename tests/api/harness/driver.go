package harness

import (
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

// Kill ends the program as a failing machine would.
func (p *Process) Kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	<-p.ended
}

// Freeze stops the program until it is thawed, or until the test ends.
func (p *Process) Freeze(t *testing.T) (thaw func()) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	thaw = func() { _ = p.command.Process.Signal(syscall.SIGCONT) } // it may have ended
	t.Cleanup(thaw)
	return thaw
}

func (p *Process) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.command.Process.Signal(signal); err != nil {
		t.Fatalf("send %s to %s: %v", signal, p.command, err)
	}
}
