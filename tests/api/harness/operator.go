package harness

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// OperatorName is the name of the operator's Deployment, Service, ServiceAccount and roles.
const OperatorName = Release + "-hostpath-provisioner-operator"

// Operator is an installed operator: a release, and its Deployment's one container run as a process of this machine.
type Operator struct {
	*Process
	// Webhook, Metrics and Health are host:port.
	Webhook, Metrics, Health string

	// Binary is the program, Kubeconfig has the rights of its ServiceAccount.
	Binary, Kubeconfig string

	s           *Server
	install     *testing.T // of the test that has the operator; a subtest that restarts it must not end it
	set         map[string]string
	environment []string
	args        []string
}

// Helm gives the newest Helm, pointed at the server.
func (s *Server) Helm(t *testing.T) helmcli.Helm {
	t.Helper()
	helm := helmcli.Newest(t)
	helm.Kubeconfig = s.Kubeconfig
	return helm
}

// InstallOperator installs the chart with operator.enabled, and starts the operator as its Deployment says:
// arguments, environment and the rights of its ServiceAccount. It does not wait until the operator is ready.
func (s *Server) InstallOperator(t *testing.T, binary string, values helmcli.Values) *Operator {
	t.Helper()
	webhook, metrics, health := FreePort(t), FreePort(t), FreePort(t)
	set := map[string]string{
		"operator.enabled":      "true",
		"operator.webhook.port": strconv.Itoa(webhook),
		"operator.metricsPort":  strconv.Itoa(metrics),
		"operator.healthPort":   strconv.Itoa(health),
	}
	maps.Copy(set, values.Set)
	o := &Operator{
		s: s, install: t, Binary: binary, set: set,
		Webhook: address(s.Host, webhook), Metrics: address(s.Host, metrics), Health: address(s.Host, health),
	}
	o.helm(t, "install", values)
	deployment := Get(t, s, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: OperatorName}})
	container := deployment.Spec.Template.Spec.Containers[0]
	o.Kubeconfig = s.KubeconfigOf(t, deployment.Spec.Template.Spec.ServiceAccountName)
	o.environment = environment(container)
	o.args = append(slices.Clone(container.Args), "--kubeconfig="+o.Kubeconfig,
		"--takeover-interval=1s", "--finalizer-grace=5s")
	s.endpoints(t, map[string]int{"webhook": webhook, "metrics": metrics})
	o.Process = s.Run(t, o.Binary, o.environment, o.args...)
	return o
}

// Upgrade gives the release other values. The process stays as it is.
func (o *Operator) Upgrade(t *testing.T, values helmcli.Values) {
	t.Helper()
	o.helm(t, "upgrade", values)
}

func (o *Operator) helm(t *testing.T, command string, values helmcli.Values) {
	t.Helper()
	values.Set = maps.Clone(values.Set)
	if values.Set == nil {
		values.Set = map[string]string{}
	}
	maps.Copy(values.Set, o.set)
	if out, err := o.s.Helm(t).Run(t, values, command, Release, helmcli.ChartDir(t)); err != nil {
		t.Fatalf("helm %s: %v\n%s", command, err, out)
	}
}

// Uninstall removes the release, also in a clean-up. Hooks do not run: their Job would need a node.
func (o *Operator) Uninstall(t *testing.T) {
	t.Helper()
	if _, err := o.s.Helm(t).Run(t, helmcli.Values{}, "uninstall", Release, "--no-hooks"); err != nil {
		t.Error(err)
	}
}

// Restart ends the operator, starts it again with more environment, and waits until it is ready.
func (o *Operator) Restart(t *testing.T, environment ...string) {
	t.Helper()
	o.Stop(t)
	o.Shown = true // it ended as it was asked to
	o.Process = o.s.Run(o.install, o.Binary, append(slices.Clip(o.environment), environment...), o.args...)
	o.Ready(t)
}

// Beside starts another program as one more pod of the same Deployment, on ports of its own. The Service does not lead
// to it.
func (o *Operator) Beside(t *testing.T, binary string) *Operator {
	t.Helper()
	webhook, metrics, health := FreePort(t), FreePort(t), FreePort(t)
	other := &Operator{
		s: o.s, install: t, Binary: binary, Kubeconfig: o.Kubeconfig, environment: o.environment,
		Webhook: address(o.s.Host, webhook), Metrics: address(o.s.Host, metrics), Health: address(o.s.Host, health),
	}
	other.args = append(slices.Clip(o.args), "--webhook-port="+strconv.Itoa(webhook),
		"--metrics-address=:"+strconv.Itoa(metrics), "--health-address=:"+strconv.Itoa(health))
	other.Process = o.s.Run(t, binary, other.environment, other.args...)
	return other
}

// Ready waits until /readyz says so.
func (o *Operator) Ready(t *testing.T) {
	t.Helper()
	Eventually(t, "the operator is ready", func(ctx context.Context) error {
		if err := o.Running(); err != nil {
			return err
		}
		return o.Readyz(ctx)
	})
}

// Readyz asks /readyz once.
func (o *Operator) Readyz(ctx context.Context) error {
	_, err := Fetch(ctx, http.DefaultClient, "http://"+o.Health+"/readyz?verbose")
	return err
}

// Fetch is what is at a URL. An answer other than 200 is an error with its text.
func Fetch(ctx context.Context, client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), nil
}

// endpoints leads the operator's Service to this machine.
func (s *Server) endpoints(t *testing.T, ports map[string]int) {
	t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: OperatorName,
			Labels: map[string]string{discoveryv1.LabelServiceName: OperatorName},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{s.Host}}},
	}
	for name, port := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: new(name), Port: new(int32(port)), Protocol: new(corev1.ProtocolTCP),
		})
	}
	if err := s.Client.Create(t.Context(), slice); err != nil {
		t.Fatalf("EndpointSlice of the operator: %v", err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(s.Client.Delete(context.WithoutCancel(t.Context()), slice)); err != nil {
			t.Error(err)
		}
	})
}

// environment is a container's, with what its pod would know about itself.
func environment(container corev1.Container) []string {
	fields := map[string]string{
		"metadata.namespace": Namespace, "metadata.name": OperatorName + "-0",
		"spec.nodeName": "operator-node", "status.podIP": "127.0.0.1",
	}
	var all []string
	for _, variable := range container.Env {
		value := variable.Value
		if variable.ValueFrom != nil && variable.ValueFrom.FieldRef != nil {
			value = fields[variable.ValueFrom.FieldRef.FieldPath]
		}
		all = append(all, variable.Name+"="+value)
	}
	return all
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// FreePort is a port that nobody listens on at the moment, and that the kernel does not give to outgoing connections:
// one of those would keep a restarted program from listening again.
func FreePort(t *testing.T) int {
	t.Helper()
	const first, count, attempts = 20000, 10000, 100
	var last error
	for range attempts {
		port := first + rand.IntN(count) //nolint:gosec // chance only has to avoid collisions
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("", strconv.Itoa(port)))
		if err == nil {
			listener.Close()
			return port
		}
		last = err
	}
	t.Fatalf("no free port in %d attempts: %v", attempts, last)
	return 0
}
