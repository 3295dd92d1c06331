package e2e

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s"
)

func TestOperatorServesTheSeedsPool(t *testing.T) {
	node := world.workers[0]
	var sum, volume string
	replacing(t, "the custom resource with a storage pool works as it is printed",
		step{"Install", func(s *scene) { s.installOperator() }},
		step{"ApplyVerbatim", func(s *scene) {
			s.admit(s.seed("pool-cr.yaml"))
			s.apply(s.seed("pool-storageclass.yaml"))
			s.deleteWhenDone("storageclass", seedClass)
			s.condition("Available", "True")
			s.condition("Progressing", "False")
			s.condition("Degraded", "False")
			want := fmt.Sprintf(`[{"currentReady":%d,"desiredReady":%[1]d,"name":"local","phase":"Ready"}]`,
				len(s.nodes))
			s.eventually("each node has reported the pool", func() (bool, string) {
				status := s.kubectl("get", "hostpathprovisioner", customResource, "--output",
					"jsonpath={.status.storagePoolStatuses}")
				return status == want, status
			})
			for _, c := range s.daemonSet("-csi").Spec.Template.Spec.Containers {
				if c.ImagePullPolicy != corev1.PullAlways {
					s.t.Errorf("container %s is pulled %s, the resource says Always", c.Name, c.ImagePullPolicy)
				}
			}
		}},
		step{"PodWritesAndReads", func(s *scene) {
			s.create(s.claim("data", seedClass, "16Mi"))
			sum = firstWord(s.output(on(node, s.pod("writer", claimed("data"), writeData()...))))
			volume = s.bound("data").Name
			s.existsOnlyOn(node, seedPath+"/csi/"+volume+"/file")
			s.deletePod("writer")
			s.output(s.pod("reader", claimed("data"), checkData(sum)...))
			s.deletePod("reader")
		}},
		step{"DriftIsReverted", func(s *scene) { s.driftIsReverted() }},
		step{"DeletionIsRefusedWhileThereAreVolumes", func(s *scene) {
			claim := s.namespace + "/data"
			s.denied([]string{"1 volume", claim, volume, "hostpathprovisioner.kubevirt.io/delete-with-volumes"},
				"delete", "hostpathprovisioner", customResource, "--timeout", "20s")
			s.denied([]string{"local", claim}, "patch", "hostpathprovisioner", customResource, "--type", "merge",
				"--patch", `{"spec":{"storagePools":[{"name":"other","path":"/var/hpother"}]}}`)
			s.denied([]string{"spec.storagePools[0].path", claim}, "patch", "hostpathprovisioner", customResource,
				"--type", "merge",
				"--patch", `{"spec":{"storagePools":[{"name":"local","path":"/var/hpother"}]}}`)
			if err := s.uninstall(s.ctx); err == nil ||
				!containsAll(err.Error(), []string{"local", seedPath, "kubectl delete hostpathprovisioner"}) {
				s.t.Errorf(
					"helm uninstall with a HostPathProvisioner in place: %v; want a refusal that names pool, path "+
						"and what to do", err,
				)
			}
			s.condition("Available", "True")
			s.output(s.pod("reader", claimed("data"), checkData(sum)...))
			s.deletePod("reader")
		}},
		step{"DeletionWithoutVolumesIsClean", func(s *scene) {
			s.remove(s.claim("data", "", "0"))
			s.gone(volume)
			s.vanishes(node, seedPath+"/csi/"+volume)
			s.deleteResource()
			s.noPodsOf(nodeComponent)
			s.noPodsOf(controllerComponent)
			s.nothingIsOwned()
			s.must(s.uninstall(s.ctx))
		}},
	)
}

// driftIsReverted changes and removes what the operator made.
func (s *scene) driftIsReverted() {
	s.t.Helper()
	before := s.daemonSet("-csi")
	s.kubectl("--namespace", namespace, "set", "env", "daemonset/"+before.Name, "--containers", "driver", "DRIFT=yes")
	s.eventually("the added variable is gone", func() (bool, string) {
		var ds appsv1.DaemonSet
		err := s.api.Get(s.ctx, before.Name, namespace, &ds)
		text := fmt.Sprintf("%+v", ds.Spec.Template.Spec.Containers)
		return err == nil && !strings.Contains(text, "DRIFT"), fmt.Sprintf("%v %s", err, text)
	})
	for _, object := range []k8s.Object{
		// Before the DaemonSet: the tokens of pods that run are those of the old account, and only new
		// pods get another.
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: before.Name, Namespace: namespace}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: before.Name, Namespace: namespace}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: controllerService, Namespace: namespace}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: controllerService, Namespace: namespace}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: before.Name, Namespace: namespace}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: before.Name + "-driver"}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: before.Name + "-driver"}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}},
	} {
		s.must(s.api.Get(s.ctx, object.GetName(), object.GetNamespace(), object))
		old := object.GetUID()
		s.remove(object)
		s.eventually(fmt.Sprintf("%T %s is there again", object, object.GetName()), func() (bool, string) {
			err := s.api.Get(s.ctx, object.GetName(), object.GetNamespace(), object)
			return err == nil && object.GetUID() != old, fmt.Sprint(err)
		})
	}
	s.daemonSet("-csi")
	s.readyControllers(1)
	s.allConnected()
	s.condition("Available", "True")
}

// nothingIsOwned checks that no object is left that the operator made.
func (s *scene) nothingIsOwned() {
	s.t.Helper()
	kinds := "daemonsets,deployments,services,serviceaccounts,configmaps,roles,rolebindings,clusterroles," +
		"clusterrolebindings,csidrivers,storageclasses"
	s.eventually("nothing is left that the operator made", func() (bool, string) {
		out, err := s.cluster.Kubectl(s.ctx, nil, "get", kinds, "--all-namespaces", "--output", "name",
			"--selector", "hostpathprovisioner.kubevirt.io/owned-by="+customResource)
		return err == nil && strings.TrimSpace(out) == "", out
	})
	var driver storagev1.CSIDriver
	if err := s.api.Get(s.ctx, driverName, "", &driver); !apierrors.IsNotFound(err) {
		s.t.Errorf("CSIDriver %s: %v", driverName, err)
	}
}

// flipped are the suite's values with the operator in place of the driver.
func (s *suite) flipped() map[string]any {
	values := s.values("info")
	values["operator"] = map[string]any{
		"enabled": true, "image": map[string]any{"tag": imageTag, "digest": s.digests["operator"]},
	}
	return values
}

func TestFlipToTheOperatorAndBack(t *testing.T) {
	nightly(t)
	node := world.workers[0]
	var sum, volume string
	alone(t, "a live release gets the operator, and loses it again, with its volumes in place",
		step{"AVolumeIsInUse", func(s *scene) {
			s.whenDone(s.plain)
			s.create(s.claim("data", classOf(poolLocal), "16Mi"))
			sum = firstWord(s.output(on(node, s.pod("writer", claimed("data"), writeData()...))))
			volume = s.bound("data").Name
			s.deletePod("writer")
		}},
		step{"UpgradeToTheOperator", func(s *scene) {
			s.must(s.install(s.ctx, s.flipped()))
			s.noPodsOf(nodeComponent)
			s.admit(s.printedResource())
			s.condition("Available", "True")
		}},
		step{"OldAndNewVolumesWork", func(s *scene) {
			s.output(s.pod("reader", claimed("data"), checkData(sum)...))
			s.deletePod("reader")
			s.create(s.claim("new", classOf(poolSecond), "16Mi"))
			s.output(on(node, s.pod("new", claimed("new"), writeData()...)))
			s.deletePod("new")
			created := s.bound("new").Name
			s.remove(s.claim("new", "", "0"))
			s.gone(created)
		}},
		step{"LetTheResourceGoAndKeepTheVolumes", func(s *scene) {
			s.typedLine("how-to/operator.md", "delete-with-volumes")
			s.deleteResource()
			s.noPodsOf(nodeComponent)
			if !s.exists(node, volumePath(poolLocal, volume)+"/file") {
				s.t.Error("data went with the resource")
			}
		}},
		step{"UpgradeBack", func(s *scene) {
			s.must(s.install(s.ctx, s.values("info")))
			s.output(s.pod("reader", claimed("data"), checkData(sum)...))
			s.deletePod("reader")
			s.remove(s.claim("data", "", "0"))
			s.gone(volume)
			s.vanishes(node, volumePath(poolLocal, volume))
		}},
	)
}

// printedResource is the HostPathProvisioner that the release's NOTES print.
func (s *scene) printedResource() string {
	s.t.Helper()
	notes, err := s.helmOutput(s.ctx, "get", "notes", release)
	s.must(err)
	_, after, found := strings.Cut(notes, "<<EOF\n")
	manifest, _, ended := strings.Cut(after, "\nEOF")
	if !found || !ended || !strings.Contains(manifest, "kind: HostPathProvisioner") {
		s.t.Fatalf("the NOTES print no HostPathProvisioner to apply:\n%s", notes)
	}
	return manifest + "\n"
}
