package chart

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// TestAdminRoles: they are there if somebody asks for them, from Helm also beside the operator, and nobody is bound.
// What they allow, tests/api/adminroles tries.
func TestAdminRoles(t *testing.T) {
	t.Parallel()
	const admin = "storage-driver-admin-"
	want := sorted([]string{
		"ClusterRole /" + admin + "viewer", "ClusterRole /" + admin + "operator", "ClusterRole /" + admin + "mover",
		"Role kube-storage/" + admin + "operator", "Role kube-storage/" + admin + "mover",
		"ValidatingAdmissionPolicy /" + admin + "exec", "ValidatingAdmissionPolicyBinding /" + admin + "exec",
		"ValidatingAdmissionPolicy /" + admin + "volumes", "ValidatingAdmissionPolicyBinding /" + admin + "volumes",
	})
	for _, name := range []string{"everything", "operator, everything"} {
		if diff := cmp.Diff(want, lost(t, renderings()[name], set("adminRoles.create", "false"))); diff != "" {
			t.Errorf("%s: objects of adminRoles (-want +got):\n%s", name, diff)
		}
	}
}

// TestThePolicyKnowsTheControllersPods by the names that Kubernetes gives them, also where it cuts them.
func TestThePolicyKnowsTheControllersPods(t *testing.T) {
	t.Parallel()
	const hash = "7bd94f5c66"
	for _, length := range []int{1, 35, 36, 45, 46, 47, 48, 52, 63} {
		full := strings.Repeat("x", length)
		values := helmcli.Values{Set: map[string]string{"adminRoles.create": "true", "fullnameOverride": full}}
		var deployment, pattern string
		for _, object := range helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values)) {
			switch object := object.(type) {
			case *appsv1.Deployment:
				deployment = object.Name
			case *admissionregistrationv1.ValidatingAdmissionPolicy:
				if strings.HasSuffix(object.Name, "-exec") {
					_, pattern, _ = strings.Cut(object.Spec.Validations[0].Expression, `.matches(r"`)
					pattern, _, _ = strings.Cut(pattern, `"`)
				}
			}
		}
		pods, err := regexp.Compile(pattern)
		if err != nil || pattern == "" {
			t.Fatalf("%s: the pattern %q: %v", full, pattern, err)
		}
		// As the controllers of Deployments and ReplicaSets do it.
		if pod := names.SimpleNameGenerator.GenerateName(deployment + "-" + hash + "-"); !pods.MatchString(pod) {
			t.Errorf("%s does not match %s", pod, pattern)
		}
		for _, other := range []string{
			full + "-csi-x2v7k", "a" + deployment + "-" + hash + "-x2v7k",
			deployment + "-" + hash + "-x2v7k-a", full + "-controller-metrics-a", full + "-operator-" + hash + "-x2v7k",
		} {
			if pods.MatchString(other) {
				t.Errorf("%s matches %s", other, pattern)
			}
		}
	}
}
