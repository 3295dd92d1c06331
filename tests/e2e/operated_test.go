package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
)

// Names that the predecessor's users know.
const (
	customResource = "hostpath-provisioner"
	seedPath       = "/var/hpvolumes"
	seedClass      = "hostpath-csi"
	legacyClass    = "hostpath-provisioner"
	immediateClass = "hostpath-provisioner-immediate"
	provisionOn    = "kubevirt.io/provisionOnNode"
	// The seeds' pool is named local too, and lies elsewhere: nodes that remember the suite's would rightly refuse it.
	seedStateDir = "/var/lib/hpp-e2e-seed-state"
)

// operated are the values of a release that runs the operator in place of
// the driver. Without pools and classes: those come from the custom resource.
func (s *suite) operated() map[string]any {
	values := s.values("info")
	delete(values, "storagePools")
	delete(values, "storageClasses")
	image := func(name string) map[string]any {
		return map[string]any{"tag": imageTag, "digest": s.digests[name]}
	}
	values["operator"] = map[string]any{"enabled": true, "image": image("operator")}
	driver, _ := values["driver"].(map[string]any)
	driver["stateDir"] = seedStateDir
	values["legacyProvisioner"] = map[string]any{"image": image("legacyprovisioner")}
	return values
}

// seed is a resource as the predecessor's documentation prints it.
func (s *scene) seed(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	s.must(err)
	return string(text)
}

// admit applies a HostPathProvisioner.
func (s *scene) admit(manifest string) {
	s.t.Helper()
	s.askWebhook(manifest, "apply", "--filename", "-")
}

// deleteResource deletes the HostPathProvisioner, and waits until it is gone.
func (s *scene) deleteResource() {
	s.t.Helper()
	s.askWebhook("", "delete", "hostpathprovisioner", customResource, "--timeout", waitTimeout.String())
}

// askWebhook runs kubectl, and again while the API server does not reach the webhook yet: kube-proxy hears of a pod
// that has become ready a moment after everybody else.
func (s *scene) askWebhook(input string, args ...string) {
	s.t.Helper()
	s.eventually("the webhook answers", func() (bool, string) {
		_, err := s.cluster.Kubectl(s.ctx, strings.NewReader(input), args...)
		if err != nil && !strings.Contains(err.Error(), "failed calling webhook") {
			s.t.Fatal(err)
		}
		return err == nil, fmt.Sprint(err)
	})
}

// resource is the HostPathProvisioner as it is now.
func (s *scene) resource() (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("hostpathprovisioner.kubevirt.io/v1beta1")
	u.SetKind("HostPathProvisioner")
	return u, s.api.Get(s.ctx, customResource, "", u)
}

// condition waits until a condition of the HostPathProvisioner is about its newest spec and has a
// status, and returns its message.
func (s *scene) condition(kind, status string) string {
	s.t.Helper()
	var message string
	s.eventually(fmt.Sprintf("condition %s of the HostPathProvisioner is %s", kind, status), func() (bool, string) {
		u, err := s.resource()
		if err != nil {
			return false, err.Error()
		}
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, entry := range conditions {
			c, _ := entry.(map[string]any)
			if c["type"] == kind && c["status"] == status && c["observedGeneration"] == u.GetGeneration() {
				message, _ = c["message"].(string)
				return true, ""
			}
		}
		return false, fmt.Sprintf("generation %d, %v", u.GetGeneration(), conditions)
	})
	return message
}

// denied runs kubectl, which has to fail with all of the words; and again while the operator's
// pod has just moved, after a drain.
func (s *scene) denied(words []string, args ...string) {
	s.t.Helper()
	var out string
	var err error
	s.eventually("the webhook answers", func() (bool, string) {
		out, err = s.cluster.Kubectl(s.ctx, nil, args...)
		return err == nil || !strings.Contains(err.Error(), "failed calling webhook"), fmt.Sprint(err)
	})
	if err == nil {
		s.t.Fatalf("kubectl %s succeeded: %s", strings.Join(args, " "), out)
	}
	if !containsAll(err.Error(), words) {
		s.t.Errorf("kubectl %s was refused without saying %q: %v", strings.Join(args, " "), words, err)
	}
}

// daemonSet is a DaemonSet of the release that has all its pods, so that what is read from it is not half rolled out.
func (s *scene) daemonSet(suffix string) *appsv1.DaemonSet {
	s.t.Helper()
	var ds appsv1.DaemonSet
	s.eventually("DaemonSet "+fullName+suffix+" is rolled out", func() (bool, string) {
		if err := s.api.Get(s.ctx, fullName+suffix, namespace, &ds); err != nil {
			return false, err.Error()
		}
		st := ds.Status
		return st.ObservedGeneration == ds.Generation && st.DesiredNumberScheduled > 0 &&
			st.UpdatedNumberScheduled == st.DesiredNumberScheduled &&
			st.NumberAvailable == st.DesiredNumberScheduled, fmt.Sprintf("%+v", st)
	})
	return &ds
}

// noPodsOf waits until a component of the release has no pod left.
func (s *scene) noPodsOf(component string) {
	s.t.Helper()
	s.eventually("no pod of "+component+" is left", func() (bool, string) {
		var list corev1.PodList
		err := s.api.List(s.ctx, &list, resources.WithLabelSelector(componentLabel+"="+component))
		return err == nil && len(list.Items) == 0, fmt.Sprintf("%d, %v", len(list.Items), err)
	})
}

// installOperator makes the release one with the operator, and no HostPathProvisioner, until the feature is over. The
// features with the operator follow one another: the release is the same from the first to the last.
func (s *scene) installOperator() {
	s.t.Helper()
	s.whenDone(s.leaveOperator)
	now, err := s.installed(s.ctx)
	s.must(err)
	if !strings.HasPrefix(now, describesOperator) {
		s.must(s.bare(s.ctx))
	}
	s.must(s.install(s.ctx, s.operated()))
}

// leaveOperator ends a feature with the operator: the next finds it without a HostPathProvisioner. After a failure
// there is no release: nothing that went wrong is left to the next feature.
func (s *scene) leaveOperator(ctx context.Context) error {
	now, err := s.installed(ctx)
	if err != nil || strings.HasPrefix(now, describesDriver) {
		return err // the feature has failed before it had the operator
	}
	err = s.withoutResource(ctx)
	if !s.top.Failed() {
		return err
	}
	if now != "" {
		err = errors.Join(err, s.uninstall(ctx), s.noDriver(ctx))
	}
	return err
}

// withoutResource removes the HostPathProvisioner with its volumes, and what its pools left on the nodes.
func (s *suite) withoutResource(ctx context.Context) error {
	var errs []error
	kubectl := func(args ...string) {
		_, err := s.cluster.Kubectl(ctx, nil, args...)
		errs = append(errs, err)
	}
	kubectl("annotate", "hostpathprovisioner", "--all", "hostpathprovisioner.kubevirt.io/delete-with-volumes=true",
		"--overwrite")
	kubectl("delete", "hostpathprovisioner", "--all", "--timeout", waitTimeout.String())
	errs = append(errs, s.noDriver(ctx))
	errs = append(errs, s.onEveryNode(ctx, "for p in "+seedPath+" "+base+"/*; do "+unmounted("$p/csi")+"done\nrm -rf "+
		seedPath+" "+seedStateDir))
	kubectl("delete", "persistentvolumeclaims", "--all", "--namespace", namespace, "--timeout", "1m")
	return errors.Join(errs...)
}

// annotated is a claim with an annotation.
func annotated(c *corev1.PersistentVolumeClaim, key, value string) *corev1.PersistentVolumeClaim {
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value)
	return c
}
