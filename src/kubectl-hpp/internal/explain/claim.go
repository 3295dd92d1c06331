package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/room"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/say"
)

// claim is a claim, and what was read about it.
type claim struct {
	facts.Facts
	*corev1.PersistentVolumeClaim
	class   *storagev1.StorageClass
	pools   []string // that its volume may be in
	unnamed error    // why there are none
	bytes   int64
	users   []corev1.Pod
	places  []room.Place
	told    []corev1.Event
}

// Claim explains a claim.
func Claim(f facts.Facts, object *corev1.PersistentVolumeClaim) say.Answer {
	c := newClaim(f, object)
	if object.Status.Phase == corev1.ClaimBound || object.Status.Phase == corev1.ClaimLost {
		return c.bound()
	}
	answer, known := say.First(c, claim.deleted, claim.named, claim.classless, claim.foreign, claim.misnamed,
		claim.copied, claim.unused, claim.unserved, claim.sourceAway, claim.driverless, claim.chosenAway,
		claim.tooLarge, claim.noRoom, claim.unscheduled, claim.refused)
	if !known {
		return unknown(f, "Pending", c.told)
	}
	return answer
}

func newClaim(f facts.Facts, object *corev1.PersistentVolumeClaim) claim {
	size := object.Spec.Resources.Requests[corev1.ResourceStorage]
	c := claim{
		Facts: f, PersistentVolumeClaim: object, bytes: size.Value(),
		told: f.About("PersistentVolumeClaim", object),
	}
	for _, pod := range f.Pods {
		if pod.Namespace == object.Namespace && slices.Contains(facts.ClaimsOf(pod), object.Name) {
			c.users = append(c.users, pod)
		}
	}
	if c.class = f.ClassOf(object); c.class != nil {
		c.pools, c.unnamed = f.PoolsOf(c.class)
		c.places = room.For(f, c.class.Name, c.pools)
	}
	return c
}

// typed is a command about the claim.
func (c claim) typed(verb, after string) string {
	return strings.TrimSpace(fmt.Sprintf("kubectl %s pvc %s -n %s %s", verb, c.Name, c.Namespace, after))
}

// usedBy names the pods that use the claim.
func (c claim) usedBy() string {
	pods := make([]string, 0, len(c.users))
	for _, pod := range c.users {
		pods = append(pods, pod.Name)
	}
	return strings.Join(pods, ", ")
}

// bound explains a claim that has, or had, a PersistentVolume.
func (c claim) bound() say.Answer {
	i := slices.IndexFunc(c.Volumes, func(pv corev1.PersistentVolume) bool { return pv.Name == c.Spec.VolumeName })
	switch {
	case i >= 0 && c.Status.Phase == corev1.ClaimBound:
		return explainVolume(c.Facts, &c.Volumes[i], &c)
	case c.Status.Phase == corev1.ClaimLost:
		return say.Answer{
			Reason: "VolumeGone", Wrong: true,
			Message: fmt.Sprintf("Lost: its PersistentVolume %s is gone, whatever became of the data.",
				c.Spec.VolumeName),
			Next: []string{
				fmt.Sprintf("If a migration or a move of it was begun: kubectl hpp migrate … -n %s %s --apply goes "+
					"on, --undo goes back; kubectl hpp move %[2]s -n %[1]s --to NODE --apply goes on", c.Namespace,
					c.Name),
				"See whether the data is still there: kubectl hpp get volumes -A, kubectl hpp get trash",
				"If it is an orphan: kubectl hpp adopt " + c.Spec.VolumeName + " --node NODE",
				"If it is in the trash: kubectl hpp undelete ENTRY --node NODE",
				"If nobody wants it: " + c.typed("delete", ""),
			},
		}
	}
	return say.Answer{
		Reason: "OtherDriver", Message: fmt.Sprintf("Bound to PersistentVolume %s, which is none of the driver %s.",
			c.Spec.VolumeName, c.Controller.Driver),
		Next: []string{c.typed("describe", "")},
	}
}

func (c claim) deleted() (say.Answer, bool) {
	if c.DeletionTimestamp == nil {
		return say.No()
	}
	if len(c.users) == 0 {
		return say.Wrong("Deleting", fmt.Sprintf("It is being deleted, and waits for its finalizers: %s.",
			strings.Join(c.Finalizers, ", ")), c.typed("get", "-o yaml"))
	}
	return say.Wrong("Deleting", fmt.Sprintf("It is being deleted, and pod %s still uses it.", c.users[0].Name),
		fmt.Sprintf("Delete the pod, too: kubectl delete pod %s -n %s", c.users[0].Name, c.Namespace))
}

// named is for a claim that asks for a certain PersistentVolume.
func (c claim) named() (say.Answer, bool) {
	if c.Spec.VolumeName == "" {
		return say.No()
	}
	pv := c.Spec.VolumeName
	i := slices.IndexFunc(c.Volumes, func(v corev1.PersistentVolume) bool { return v.Name == pv })
	if i < 0 {
		return say.Wrong("VolumeMissing", fmt.Sprintf("Pending: it asks for PersistentVolume %s, and driver %s has "+
			"none of that name.", pv, c.Controller.Driver), "kubectl get pv "+pv, "If its data is an orphan: kubectl "+
			"hpp adopt "+pv+" --node NODE")
	}
	of := persistentvolume.Describe(&c.Volumes[i], c.Controller.Driver, c.Controller.TopologyKey).Claim
	if of.Name == "" || of.Name == c.Name && of.Namespace == c.Namespace && (of.UID == "" || of.UID == string(c.UID)) {
		return say.Fine("Binding", fmt.Sprintf("Pending: it asks for PersistentVolume %s, which is %s; Kubernetes "+
			"binds them if size, access modes and class fit.", pv, c.Volumes[i].Status.Phase),
			"kubectl describe pv "+pv)
	}
	return say.Wrong("VolumeTaken", fmt.Sprintf("Pending: it asks for PersistentVolume %s, which is of claim %s (%s).",
		pv, of, of.UID), "kubectl hpp explain pv "+pv)
}

// classless is for a claim without a StorageClass.
func (c claim) classless() (say.Answer, bool) {
	switch name := c.Spec.StorageClassName; {
	case c.class != nil || len(c.Classes) == 0 && name != nil: // classes could not be read
		return say.No()
	case name == nil:
		return say.Wrong("NoClass", "Pending: it names no StorageClass, and none is the default.",
			"Make one the default: kubectl annotate storageclass CLASS "+facts.DefaultClass+"=true")
	case *name == "":
		return say.Fine("NoClass",
			`Pending: its StorageClass is "", so that it waits for a PersistentVolume without one.`,
			"kubectl get pv")
	default:
		all := make([]string, 0, len(c.Classes))
		for _, class := range c.Classes {
			all = append(all, class.Name)
		}
		return say.Wrong("ClassMissing", fmt.Sprintf("Pending: there is no StorageClass %s; there are: %s.", *name,
			strings.Join(all, ", ")), "Make that class, or the claim anew with one of these.")
	}
}

func (c claim) foreign() (say.Answer, bool) {
	if c.class == nil || c.class.Provisioner == c.Controller.Driver {
		return say.No()
	}
	return say.Fine("OtherDriver", fmt.Sprintf("Pending: its StorageClass %s is of %s, not of %s.", c.class.Name,
		c.class.Provisioner, c.Controller.Driver), c.typed("describe", ""))
}

// misnamed is for a class with a parameter that is wrong, or that names no pool of any node.
func (c claim) misnamed() (say.Answer, bool) {
	if c.unnamed == nil {
		return say.No()
	}
	return say.Wrong("PoolUnknown", fmt.Sprintf("Pending: StorageClass %s: %v.", c.class.Name, c.unnamed),
		"Delete the class and make it anew: its parameters cannot change. Or add the pool to the chart's value "+
			"storagePools.")
}

// copied is for a claim whose data is being copied.
func (c claim) copied() (say.Answer, bool) {
	for _, v := range c.Listed {
		switch {
		case v.ID != facts.IDOf(c) || v.State == "":
		case v.State == nodeapi.NotWhole:
			return say.Fine("CopyWaits", fmt.Sprintf("Pending: its copy on node %s was interrupted, and goes on when "+
				"csi-provisioner asks for it again.", v.Node), c.typed("describe", ""))
		case strings.HasSuffix(v.State, "copied"):
			return say.Fine("Copying", fmt.Sprintf("Pending: its data is being copied to node %s: %s.", v.Node,
				v.State))
		}
	}
	return say.No()
}

// unused is for a claim that no pod uses, which is not looked at before one does.
func (c claim) unused() (say.Answer, bool) {
	if c.class == nil || !facts.Delayed(c.class) || len(c.users) > 0 || c.Annotations[facts.SelectedNode] != "" {
		return say.No()
	}
	return say.Fine("WaitsForPod", fmt.Sprintf("Pending, which is as it should be: no pod uses it, and StorageClass "+
		"%s makes volumes for pods (%s).", c.class.Name, storagev1.VolumeBindingWaitForFirstConsumer),
		"Start a pod that uses the claim.")
}

func (c claim) unserved() (say.Answer, bool) {
	if c.Away == "" {
		return say.No()
	}
	return say.Wrong("ControllerAway", fmt.Sprintf("Pending: the controller makes all volumes, and it cannot be "+
		"asked: %s.", c.Away), "kubectl hpp doctor", "kubectl get pods -A -l "+
		"app.kubernetes.io/component=csi-controller -o wide")
}

// sourceAway is for a copy of what is on a node that is not connected.
func (c claim) sourceAway() (say.Answer, bool) {
	source := c.Spec.DataSourceRef
	if source == nil {
		return say.No()
	}
	what := source.Kind + " " + source.Name
	said := c.Refusal(c.told)
	if strings.Contains(said, "is not connected to the controller") {
		return say.Wrong("SourceAway", fmt.Sprintf("Pending: the node of %s, which it is a copy of, is not "+
			"connected: %s", what, facts.WithoutCode(said)), "kubectl hpp get nodes", "Bring the node back: the copy "+
			"is then made by itself.")
	}
	for _, v := range c.Volumes {
		of := v.Spec.ClaimRef
		if source.Kind != "PersistentVolumeClaim" || of == nil || of.Name != source.Name ||
			of.Namespace != c.Namespace {
			continue
		}
		nodes, _ := persistentvolume.Nodes(&v, c.Controller.TopologyKey)
		for _, name := range nodes {
			if n, known := c.Node(name); known && n.State != facts.Connected {
				return say.Wrong("SourceAway", fmt.Sprintf("Pending: %s, which it is a copy of, is on node %s, which "+
					"is not connected.", what, name), "kubectl hpp explain node "+name)
			}
		}
	}
	return say.No()
}

func (c claim) wants() string { return bytesize.Format(c.bytes) }
