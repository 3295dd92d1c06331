package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// operator is the full name of the operator's objects in a rendering without a name of its own.
const operator = "hpp-hostpath-provisioner-operator"

// withOperator is a rendering's values with operator.enabled and more values of the operator.
func withOperator(values helmcli.Values, more map[string]string) helmcli.Values {
	all := map[string]string{"operator.enabled": "true"}
	maps.Copy(all, values.Set)
	maps.Copy(all, more)
	values.Set = all
	return values
}

// TestOperatorArguments: the flags and variables that the operator's binary takes.
func TestOperatorArguments(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, withOperator(helmcli.Values{}, nil)))
	spec := helmcli.Find[*appsv1.Deployment](t, objects, operator).Spec.Template.Spec
	want := []string{
		"--release-name=hpp", "--base-config=" + operator + "-base", "--driver-name=kubevirt.io.hostpath-provisioner",
		"--service=" + operator, "--webhook-configuration=" + operator, "--webhook-port=9443",
		"--certificates=self-managed",
		"--certificate-secret=" + operator + "-tls", "--metrics-address=:8443", "--health-address=:8081",
		"--log-level=info", "--log-format=json",
	}
	manager := container(t, spec, "operator")
	if diff := cmp.Diff(want, manager.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"POD_NAME", "POD_NAMESPACE"}, environment(manager.Env)); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if live, ready := manager.LivenessProbe.HTTPGet, manager.ReadinessProbe.HTTPGet; live.Path != "/livez" ||
		ready.Path != "/readyz" ||
		live.Port.StrVal != "health" || ready.Port.StrVal != "health" {
		t.Errorf("probes %v and %v, want /livez and /readyz on the port health", live, ready)
	}
}

func environment(variables []corev1.EnvVar) []string {
	var all []string
	for _, variable := range variables {
		text := variable.Name
		if variable.Value != "" {
			text += "=" + variable.Value
		}
		all = append(all, text)
	}
	return all
}

// TestEveryValueReachesTheOperator: each value of testdata/operator.yaml is where it belongs.
func TestEveryValueReachesTheOperator(t *testing.T) {
	t.Parallel()
	const name = "storage-driver-operator"
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()["operator, everything"]))
	deployment := helmcli.Find[*appsv1.Deployment](t, objects, name)
	pod := deployment.Spec.Template
	manager := container(t, pod.Spec, "operator")
	ports := map[string]int32{}
	for _, port := range manager.Ports {
		ports[port.Name] = port.ContainerPort
	}
	got := map[string]any{
		"replicas": *deployment.Spec.Replicas, "image": manager.Image, "pull policy": manager.ImagePullPolicy,
		"env":     environment(manager.Env),
		"account": pod.Spec.ServiceAccountName, "priority": pod.Spec.PriorityClassName,
		"toleration": pod.Spec.Tolerations[0].Key,
		"selector":   pod.Spec.NodeSelector["control"], "pull secret": pod.Spec.ImagePullSecrets[0].Name,
		"ports": ports, "annotation": pod.Annotations["example.com/pod"], "label": pod.Labels["example.com/pod"],
		"affinity": affinityKey(pod.Spec.Affinity),
		"spread":   pod.Spec.TopologySpreadConstraints[0].TopologyKey,
		"last":     manager.Args[len(manager.Args)-1],
		"account's annotation": helmcli.Find[*corev1.ServiceAccount](t, objects, "operator-account").
			Annotations["example.com/account"],
		"timeout": *helmcli.Find[*admissionv1.ValidatingWebhookConfiguration](t, objects,
			name).Webhooks[0].TimeoutSeconds,
	}
	want := map[string]any{
		"replicas": int32(3), "image": "mirror.example.com/hub/hostpath-provisioner/operator:1.11",
		"pull policy": corev1.PullAlways,
		"env": []string{
			"POD_NAME", "POD_NAMESPACE", "TLS_MIN_VERSION_OVERRIDE=VersionTLS13",
			"TLS_CIPHERS_OVERRIDE=TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384", "GOMEMLIMIT=128MiB",
		},
		"account": "operator-account", "priority": "important", "toleration": "control", "selector": "yes",
		"pull secret": "pull-secret",
		"ports":       map[string]int32{"webhook": 19443, "metrics": 18443, "health": 18081},
		"annotation":  "annotation", "label": "label", "affinity": "virtual", "spread": "kubernetes.io/hostname",
		"last": "--log-level=debug", "account's annotation": "annotation", "timeout": int32(7),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operator (-want +got):\n%s", diff)
	}
	for _, flag := range []string{
		"--webhook-port=19443", "--metrics-address=:18443", "--health-address=:18081",
		"--log-level=warn", "--log-format=text",
	} {
		if !slices.Contains(manager.Args, flag) {
			t.Errorf("no %s among %v", flag, manager.Args)
		}
	}
}

// TestWebhook: all that the API server has to know, and no caBundle, which an upgrade would then put back.
func TestWebhook(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"self-managed", "cert-manager", "openshift", "existingSecret"} {
		set := map[string]string{"operator.webhook.certificates": mode}
		if mode == "existingSecret" {
			set["operator.webhook.existingSecret"] = "mine"
		}
		manifest := helmsdk.Newest().MustTemplate(t, withOperator(helmcli.Values{}, set))
		configuration := helmcli.Find[*admissionv1.ValidatingWebhookConfiguration](t, helmcli.Objects(t, manifest),
			operator)
		want := []admissionv1.ValidatingWebhook{{
			Name:                    "validate.hostpathprovisioner.kubevirt.io",
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
				Name: operator, Namespace: helmcli.Namespace, Port: new(int32(443)),
				Path: new("/validate-hostpathprovisioner-kubevirt-io-v1beta1-hostpathprovisioner"),
			}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
				Rule: admissionv1.Rule{
					APIGroups: []string{"hostpathprovisioner.kubevirt.io"}, APIVersions: []string{"v1beta1"},
					Resources: []string{"hostpathprovisioners"}, Scope: new(admissionv1.ClusterScope),
				},
			}},
			MatchPolicy: new(admissionv1.Equivalent), FailurePolicy: new(admissionv1.Fail),
			SideEffects:    new(admissionv1.SideEffectClassNone),
			TimeoutSeconds: new(int32(10)),
			MatchConditions: []admissionv1.MatchCondition{
				{
					Name: "changes-the-spec",
					Expression: "request.operation != 'UPDATE' || !has(object.metadata.deletionTimestamp) && " +
						"(has(object.spec) != has(oldObject.spec) || has(object.spec) && object.spec != " +
						"oldObject.spec)",
				},
				{Name: "is-not-being-deleted-already", Expression: "request.operation != 'DELETE' || " +
					"!has(oldObject.metadata.deletionTimestamp)"},
			},
		}}
		if diff := cmp.Diff(want, configuration.Webhooks); diff != "" {
			t.Errorf("%s: webhooks (-want +got):\n%s", mode, diff)
		}
	}
}

// TestServiceLeadsToTheOperator and only there: not to the pod of the uninstall check.
func TestServiceLeadsToTheOperator(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, withOperator(helmcli.Values{}, nil)))
	service := helmcli.Find[*corev1.Service](t, objects, operator)
	ports := map[string]string{}
	for _, port := range service.Spec.Ports {
		ports[port.Name] = port.TargetPort.String()
	}
	if diff := cmp.Diff(map[string]string{"webhook": "webhook", "metrics": "metrics"}, ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if !within(service.Spec.Selector, helmcli.Find[*appsv1.Deployment](t, objects, operator).Spec.Template.Labels) {
		t.Errorf("the Service's selector %v does not fit the operator's pods", service.Spec.Selector)
	}
	if within(service.Spec.Selector, helmcli.Find[*batchv1.Job](t, objects, operator+"-check").Spec.Template.Labels) {
		t.Errorf("the Service's selector %v fits the uninstall check's pod", service.Spec.Selector)
	}
}

func within(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// TestUninstallCheck runs before a release is deleted, once, as the operator, and its output is shown when it refuses.
func TestUninstallCheck(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(
		t, helmsdk.Newest().MustTemplate(t, withOperator(helmcli.Values{}, map[string]string{"driver.name": "a.b"})),
	)
	job := helmcli.Find[*batchv1.Job](t, objects, operator+"-check")
	deployment := helmcli.Find[*appsv1.Deployment](t, objects, operator)
	want := map[string]string{
		"helm.sh/hook": "pre-delete", "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
		"helm.sh/hook-output-log-policy": "hook-failed",
	}
	if diff := cmp.Diff(want, job.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	pod, check := job.Spec.Template.Spec, container(t, job.Spec.Template.Spec, "check-uninstall")
	if *job.Spec.BackoffLimit != 0 || pod.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("backoff limit %d, restart policy %s: the answer would come again and again",
			*job.Spec.BackoffLimit, pod.RestartPolicy)
	}
	if diff := cmp.Diff([]string{"check-uninstall", "--driver-name=a.b", "--namespace=storage"},
		check.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if image := container(t, deployment.Spec.Template.Spec, "operator").Image; check.Image != image ||
		pod.ServiceAccountName != deployment.Spec.Template.Spec.ServiceAccountName {
		t.Errorf("image %s and account %s, want the operator's", check.Image, pod.ServiceAccountName)
	}
}

// TestOperatorPassesRestricted: the operator's pods and the uninstall check's.
func TestOperatorPassesRestricted(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"operator", "operator, everything", "operator, openshift"} {
		for _, object := range helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()[name])) {
			pod, found := podOf(object)
			if !found {
				continue
			}
			restricted(t, name+": "+object.GetName(), &pod.ObjectMeta, &pod.Spec)
			if root := pod.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem; root == nil || !*root {
				t.Errorf("%s: %s: its root filesystem is writable", name, object.GetName())
			}
			wantSCC := ""
			if name == "operator, openshift" {
				wantSCC = "restricted-v2"
				if pod.Spec.SecurityContext.RunAsUser != nil {
					t.Errorf("%s: %s: a fixed user, which restricted-v2 refuses", name, object.GetName())
				}
			}
			if scc := pod.Annotations["openshift.io/required-scc"]; scc != wantSCC {
				t.Errorf("%s: %s: required-scc %q, want %q", name, object.GetName(), scc, wantSCC)
			}
		}
	}
}

// podOf gives the pod of a Deployment or a Job.
func podOf(object client.Object) (corev1.PodTemplateSpec, bool) {
	switch typed := object.(type) {
	case *appsv1.Deployment:
		return typed.Spec.Template, true
	case *batchv1.Job:
		return typed.Spec.Template, true
	default:
		return corev1.PodTemplateSpec{}, false
	}
}

// TestOperatorNetworkPolicy covers the operator and the uninstall check, and opens the three ports and no more.
func TestOperatorNetworkPolicy(t *testing.T) {
	t.Parallel()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, renderings()["operator, everything"]))
	policy := helmcli.Find[*networkingv1.NetworkPolicy](t, objects, "storage-driver-operator")
	if diff := cmp.Diff([]string{"operator", "operator-check"},
		policy.Spec.PodSelector.MatchExpressions[0].Values); diff != "" {
		t.Errorf("components (-want +got):\n%s", diff)
	}
	var open []string
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			from := "anywhere"
			if len(rule.From) > 0 {
				from = rule.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
			}
			open = append(open, port.Port.String()+" from "+from)
		}
	}
	if diff := cmp.Diff([]string{"19443 from anywhere", "18081 from anywhere", "18443 from monitoring"},
		open); diff != "" {
		t.Errorf("ingress (-want +got):\n%s", diff)
	}
	var out []string
	for _, rule := range policy.Spec.Egress {
		for _, port := range rule.Ports {
			out = append(out, port.Port.String())
		}
	}
	if got := strings.Join(out, " "); got != "8443 53 53" {
		t.Errorf("egress to ports %s, want the API server's and DNS", got)
	}
}
