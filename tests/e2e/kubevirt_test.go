package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
	"sigs.k8s.io/yaml"
)

// What kubevirt's operator left, beside the pool kubevirt.
const (
	// claimedPool has a claim, whose disk is mounted at claimedDisk.
	claimedPool = "claimed"
	claimedDisk = disks + "/kubevirts"
	// kubevirtStateDir is where the driver that stands in for kubevirt's remembers its pools: not where ours will look.
	kubevirtStateDir = "/var/lib/hpp-e2e-kubevirt-state"
	kubevirtOperator = "hostpath-provisioner-operator"
	definition       = "hostpathprovisioners.hostpathprovisioner.kubevirt.io"
	kubevirtWebhook  = "hostpathprovisioner.kubevirt.io"
)

// kubevirtsObjects are the files of objects as kubevirt's operator has and makes them, which the API tests use too.
const kubevirtsObjects = "../api/operator/testdata/kubevirt"

// kubevirts is the manifest in a file, for a node. Images of kubevirt's cannot be had here: selftest sleeps in their
// place. What OpenShift and the Prometheus operator would define is left out.
func (s *scene) kubevirts(file, node string) string {
	s.t.Helper()
	text, err := os.ReadFile(file)
	s.must(err)
	whole := strings.NewReplacer("${NAMESPACE}", namespace, "${NODE}", node, "${POOL}", claimedPool, "${NAME}",
		kubevirtWebhook, "${DISK}", claimedDisk, "${PATH_OF_KUBEVIRT}", pathOf(kubevirtPool), "${PATH_OF_CLAIMED}",
		pathOf(claimedPool)).Replace(string(text))
	whole = regexp.MustCompile(`image: quay\.io/kubevirt/\S+`).ReplaceAllString(whole, "image: "+s.image("selftest"))
	whole = regexp.MustCompile(`command: \[.*\]`).ReplaceAllString(whole, "args: [sleep]")
	objects := slices.DeleteFunc(strings.Split(whole, "\n---\n"), func(object string) bool {
		return strings.Contains(object, "monitoring.coreos.com") || strings.Contains(object, "security.openshift.io")
	})
	return strings.Join(objects, "\n---\n")
}

// begin makes the cluster as kubevirt's operator leaves it: an administrator's first look at it.
func (k *kubevirtsCluster) begin(s *scene) {
	s.t.Helper()
	if k.claims {
		s.mountDisk(k.node, claimedPool, "512M", claimedDisk)
	}
	s.whenDone(func(ctx context.Context) error {
		_, err := s.cluster.NodeExec(ctx, k.node, "sh", "-ec", unmounted(pathOf(claimedPool)+"/csi")+
			"rm -rf "+pathOf(kubevirtPool)+" "+pathOf(claimedPool)+" "+kubevirtStateDir)
		return err
	})
	s.whenDone(s.leaveOperator)
	s.must(s.bare(s.ctx))
	s.kubectl("delete", "customresourcedefinition", definition, "--ignore-not-found", "--timeout", "1m")
	s.apply("{apiVersion: v1, kind: Namespace, metadata: {name: " + namespace + "}}")
	s.apply(s.kubevirts(kubevirtsObjects+"/definition.yaml", k.node))
	resource := s.kubevirts("testdata/kubevirt-resource.yaml", k.node)
	files := []string{kubevirtsObjects + "/leftovers.yaml", kubevirtsObjects + "/operator.yaml"}
	if k.claims {
		files = append(files, "testdata/kubevirt-claim.yaml", kubevirtsObjects+"/mounter.yaml")
	} else {
		resource = regexp.MustCompile(`(?s)    - name: claimed\n.*?(  workload:)`).ReplaceAllString(resource, "$1")
	}
	s.eventually("the definition is served", func() (bool, string) {
		_, err := s.cluster.Kubectl(s.ctx, strings.NewReader(resource), "apply", "--filename", "-")
		return err == nil, fmt.Sprint(err)
	})
	for _, file := range files {
		manifest := s.kubevirts(file, k.node)
		s.removeWhenDone(manifest)
		s.apply(manifest)
	}
	s.whenDone(s.letKubevirtsResourceGo)
	s.kubectl("create", "serviceaccount", kubevirtOperator, "--namespace", namespace)
	s.whenDone(func(ctx context.Context) error {
		_, err := s.cluster.Kubectl(ctx, nil, "delete", "serviceaccount", kubevirtOperator, "--namespace", namespace,
			"--ignore-not-found")
		return err
	})
	pools := []pool{{Name: kubevirtPool, Path: pathOf(kubevirtPool)}}
	if k.claims {
		k.mountClaim(s)
		pools = append(pools, pool{Name: claimedPool, Path: pathOf(claimedPool)})
	}
	s.runKubevirtsDriver(k.node, pools)
}

// mountClaim does on the node what kubevirt's mounter does: a bind mount of the pool's claim, as the kubelet has it for
// the mounter's pod.
func (k *kubevirtsCluster) mountClaim(s *scene) {
	s.t.Helper()
	var pod corev1.Pod
	s.eventually("the stand-in for kubevirt's mounter runs", func() (bool, string) {
		var list corev1.PodList
		err := s.api.List(s.ctx, &list, resources.WithLabelSelector("hpp-pool="+claimedPool+"-hpp"))
		if err != nil || len(list.Items) != 1 {
			return false, fmt.Sprintf("%d pods, %v", len(list.Items), err)
		}
		pod = list.Items[0]
		return isReady(&pod), describe(&pod)
	})
	s.onNode(k.node, "mkdir -p "+pathOf(claimedPool)+"/csi; mount --bind /var/lib/kubelet/pods/"+string(pod.UID)+
		"/volumes/kubernetes.io~local-volume/e2e-kubevirt-disk "+pathOf(claimedPool)+"/csi")
	k.mounted = s.mountAt(k.node, pathOf(claimedPool)+"/csi")
}

// kubevirtsDaemonSet is the name that kubevirt's operator gives to its driver.
const kubevirtsDaemonSet = "hostpath-provisioner-csi"

// runKubevirtsDriver runs a driver under the names, labels and selector of kubevirt's. It is ours, for images of
// kubevirt's cannot be had here; its stateDir and socket are not those of our release.
func (s *scene) runKubevirtsDriver(node string, pools []pool) {
	s.t.Helper()
	values := s.values("info")
	values["fullnameOverride"] = "hostpath-provisioner"
	values["storagePools"] = pools
	values["storageClasses"] = []class{}
	driver, _ := values["driver"].(map[string]any)
	driver["stateDir"] = kubevirtStateDir
	driver["nodeSelector"] = map[string]string{corev1.LabelHostname: node}
	driver["serviceAccount"] = map[string]any{"name": "hostpath-provisioner-admin-csi"}
	text, err := yaml.Marshal(values)
	s.must(err)
	file := filepath.Join(s.artifacts, "kubevirt-values.yaml")
	s.must(os.WriteFile(file, text, 0o644))
	render := func(template string) string {
		out, err := s.helmOutput(s.ctx, "template", "kubevirt", filepath.Join(s.root, chartFolder), "--values", file,
			"--show-only", "templates/csi-driver/"+template+".yaml")
		s.must(err)
		return strings.ReplaceAll(out, "managed-by: Helm", "managed-by: "+kubevirtOperator)
	}
	for _, template := range []string{"configmap", "rbac", "csidriver"} {
		manifest := render(template)
		s.removeWhenDone(manifest)
		s.apply(manifest)
	}
	s.apply(s.asKubevirts(render("daemonset")))
	s.eventually("the stand-in for kubevirt's driver is ready", func() (bool, string) {
		out := s.kubectl("get", "daemonset", kubevirtsDaemonSet, "--namespace", namespace, "--output",
			"jsonpath={.status.numberReady}/{.status.desiredNumberScheduled}")
		return out == "1/1", out
	})
}

// asKubevirts gives a DaemonSet of the chart's the labels, the selector, the socket and the owner of kubevirt's.
func (s *scene) asKubevirts(manifest string) string {
	s.t.Helper()
	owner, err := s.resource()
	s.must(err)
	labels := map[string]any{
		"k8s-app": "hostpath-provisioner", "app.kubernetes.io/managed-by": kubevirtOperator,
		"app.kubernetes.io/component": "storage",
	}
	var object map[string]any
	s.must(yaml.Unmarshal([]byte(manifest), &object))
	object["metadata"] = map[string]any{
		"name": kubevirtsDaemonSet, "namespace": namespace, "labels": labels,
		"ownerReferences": []any{map[string]any{
			"apiVersion": owner.GetAPIVersion(), "kind": owner.GetKind(), "name": owner.GetName(),
			"uid": owner.GetUID(), "controller": true, "blockOwnerDeletion": true,
		}},
	}
	spec, _ := object["spec"].(map[string]any)
	spec["selector"] = map[string]any{"matchLabels": map[string]any{"k8s-app": "hostpath-provisioner"}}
	template, _ := spec["template"].(map[string]any)
	template["metadata"] = map[string]any{"labels": labels}
	text, err := yaml.Marshal(object)
	s.must(err)
	return strings.ReplaceAll(string(text), "plugins/"+driverName+"/", "plugins/csi-hostpath/")
}

// letKubevirtsResourceGo takes away what would keep the resource, wherever the takeover stopped: kubevirt's webhook,
// which refuses everything, its driver, and the finalizer that nobody would remove.
func (s *suite) letKubevirtsResourceGo(ctx context.Context) error {
	kubectl := func(args ...string) (string, error) { return s.cluster.Kubectl(ctx, nil, args...) }
	there, err := kubectl("get", "customresourcedefinition", definition, "--ignore-not-found", "--output", "name")
	if there == "" {
		return err
	}
	_, err = kubectl("delete", "validatingwebhookconfiguration", kubevirtWebhook, "--ignore-not-found")
	_, gone := kubectl("delete", "daemonset", kubevirtsDaemonSet, "--namespace", namespace, "--ignore-not-found")
	left, listed := kubectl("get", "hostpathprovisioners", "--ignore-not-found", "--output", "name")
	errs := []error{err, gone, listed}
	if left = strings.TrimSpace(left); left != "" {
		_, err = kubectl("patch", left, "--type", "merge", "--patch", `{"metadata":{"finalizers":null}}`)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
