package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/api/harness"
)

// connect: two controllers start at once, after the nodes. Both have all nodes.
func connect(t *testing.T, w *world) {
	w.nodes["node-1"].says(t, "the controller's authorities (--controller-ca) are not there yet")
	w.controller, w.replica = w.startController(addresses()[0]), w.startController(addresses()[1])
	for _, controller := range []*program{w.controller, w.replica} {
		controller.connected(t, slices.Sorted(maps.Keys(w.nodes))...)
	}
	// What they wrote is in objects that are Helm's as before: it would not adopt them otherwise.
	meta := metav1.ObjectMeta{Namespace: harness.Namespace, Name: service + "-tls"}
	secret := harness.Get(t, w.Server, &corev1.Secret{ObjectMeta: meta})
	meta.Name = caConfigMap
	authorities := harness.Get(t, w.Server, &corev1.ConfigMap{ObjectMeta: meta})
	if string(secret.Data["ca.crt"]) != authorities.Data["ca.crt"] || authorities.Data["ca.crt"] == "" {
		t.Errorf("the nodes are to trust\n%s\nand the Secret has\n%s", authorities.Data["ca.crt"],
			secret.Data["ca.crt"])
	}
	for _, object := range []client.Object{secret, authorities} {
		if object.GetLabels()["app.kubernetes.io/managed-by"] != "Helm" ||
			object.GetAnnotations()["meta.helm.sh/release-name"] != harness.Release {
			t.Errorf("%s: labels %v, annotations %v", object.GetName(), object.GetLabels(), object.GetAnnotations())
		}
	}
}

// tokens: whom the controller refuses. An expired token cannot be had here, as the API makes none that ends within ten
// minutes; one whose pod is gone is no longer valid either.
func tokens(t *testing.T, w *world) {
	account, other := w.driverPod.ServiceAccountName, w.controllerPod.ServiceAccountName
	const audience = harness.ControllerAudience
	pod := func(account, node string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, GenerateName: "pod-"}}
		pod.Spec = corev1.PodSpec{NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{
			Name: "one", Image: "none",
		}}}
		w.Create(t, pod)
		return pod
	}
	stranger, ended := pod(other, "node-1"), pod(account, "pod-ended")
	late := w.Token(t, account, audience, ended)
	w.Delete(t, ended, client.GracePeriodSeconds(0))
	w.Gone(t, ended)
	const notAccepted = `the token of node \"%s\": the API does not accept the token: `
	const otherAudience = `the token of node \"%s\": the token is not for the audience ` + audience
	refused := map[string]string{}
	for name, test := range map[string]struct{ token, sentence string }{
		"audience":  {w.Token(t, account, "somebody-else", w.pods["node-1"]), otherAudience},
		"pod-ended": {late, notAccepted},
		"no-pod":    {w.Token(t, account, audience, nil), `the token of node \"%s\": the token was made for no pod`},
		"no-token":  {"", `the token of node \"%s\": there is no token`},
		"another": {
			w.Token(t, other, audience, stranger),
			`the token of node \"%s\": the token is that of system:serviceaccount:storage:` + other + ", not of ",
		},
		"node-1": {w.token(t, "node-2"), `node \"%s\" shows a token of node \"node-2\"`},
	} {
		refused[name] = fmt.Sprintf(test.sentence, name)
		w.node(t, name, test.token)
	}
	for name, sentence := range refused {
		w.controller.says(t, sentence)
		if log := w.controller.Log(); name != "node-1" && strings.Contains(log, `"a node is connected","node":"`+name) {
			t.Errorf("%s is connected", name)
		}
	}
	w.controller.connected(t, slices.Sorted(maps.Keys(w.nodes))...)
}

// misled: what a driver says that cannot reach the controller. It serves its kubelet all the same.
func misled(t *testing.T, w *world) {
	nobody := net.JoinHostPort(host, strconv.Itoa(harness.FreePort(t)))
	for option, sentence := range map[string]string{
		"--controller=nowhere.invalid:7443": "cannot find the controller's Service",
		"--controller=" + nobody:            "connection refused",
		"--controller-ca=another":           `configmaps \"another\" is forbidden`,
	} {
		p := w.node(t, "node-5", w.token(t, "node-5"), option)
		p.says(t, sentence)
		if answer, err := p.Probe(t.Context(), &pb.ProbeRequest{}); err != nil || !answer.GetReady().GetValue() {
			t.Errorf("%s: the driver is not ready: %v, %v", option, answer, err)
		}
	}
}

// foreignCA: a driver starts while the ConfigMap has another authority, the API server's. The controller repairs it.
func foreignCA(t *testing.T, w *world) {
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: caConfigMap}}
	spoil := func() {
		harness.Change(t, w.Server, ca, func(c *corev1.ConfigMap) {
			c.Data = map[string]string{"ca.crt": string(w.Config.CAData)}
		})
	}
	spoil()
	p := w.node(t, "node-5", w.token(t, "node-5"))
	harness.Eventually(t, "the controller's certificate is refused", func(context.Context) error {
		if strings.Contains(p.Log(), "the controller's certificate is refused") {
			return nil
		}
		spoil()
		if strings.Contains(p.Log(), "connected to the controller") { // which had repaired it before
			p.Stop(t)
			p = w.node(t, "node-5", w.token(t, "node-5"))
		}
		return errors.New("the driver does not say so")
	})
	p.says(t, "certificate signed by unknown authority; see the ConfigMap with its authorities (--controller-ca)")
	w.controller.connected(t, "node-5")
}
