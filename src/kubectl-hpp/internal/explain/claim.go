package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/persistentvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

const (
	// selectedNode is the scheduler's annotation on a claim (component-helpers/storage/volume, AnnSelectedNode).
	selectedNode = "volume.kubernetes.io/selected-node"
	// defaultClass is the annotation of the class of claims that name none.
	defaultClass = "storageclass.kubernetes.io/is-default-class"
)

// claim is a claim, and what was read about it.
type claim struct {
	Facts
	*corev1.PersistentVolumeClaim
	class   *storagev1.StorageClass
	pools   []string // that its volume may be in
	unnamed error    // why there are none
	bytes   int64
	users   []corev1.Pod
	places  []place
	told    []corev1.Event
}

// Claim explains a claim.
func Claim(f Facts, object *corev1.PersistentVolumeClaim) Answer {
	c := newClaim(f, object)
	if object.Status.Phase == corev1.ClaimBound || object.Status.Phase == corev1.ClaimLost {
		return c.bound()
	}
	answer, known := first(c, claim.deleted, claim.named, claim.classless, claim.foreign, claim.misnamed, claim.copied,
		claim.unused, claim.unserved, claim.sourceAway, claim.driverless, claim.chosenAway, claim.tooLarge,
		claim.noRoom, claim.unscheduled, claim.refused)
	if !known {
		return f.unknown("Pending", c.told)
	}
	return answer
}

func newClaim(f Facts, object *corev1.PersistentVolumeClaim) claim {
	size := object.Spec.Resources.Requests[corev1.ResourceStorage]
	c := claim{
		Facts: f, PersistentVolumeClaim: object, bytes: size.Value(),
		told: f.events("PersistentVolumeClaim", object),
	}
	for _, pod := range f.Pods {
		if pod.Namespace == object.Namespace && slices.Contains(ClaimsOf(pod), object.Name) {
			c.users = append(c.users, pod)
		}
	}
	if c.class = f.classOf(object); c.class != nil {
		c.pools, c.unnamed = f.poolsOf(c.class)
		c.places = f.places(c.class.Name, c.pools)
	}
	return c
}

// classOf is nil where there is none, or none of that name.
func (f Facts) classOf(object *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	name := object.Spec.StorageClassName
	i := slices.IndexFunc(f.Classes, func(c storagev1.StorageClass) bool {
		if name == nil {
			return c.Annotations[defaultClass] == "true"
		}
		return c.Name == *name
	})
	if i < 0 {
		return nil
	}
	return &f.Classes[i]
}

// poolsOf are the pools that a class means, among those that nodes show.
func (f Facts) poolsOf(class *storagev1.StorageClass) (pools []string, err error) {
	named := class.Parameters[names.StoragePoolParameter]
	shown := Pools(f.Reported)
	if len(shown) == 0 { // what a prefix means is not known
		return strings.Split(named, ","), nil
	}
	known := make([]string, 0, len(shown))
	for _, p := range shown {
		known = append(known, p.Name)
	}
	pools, err = poolspec.PoolsOf(shown, named)
	if err == nil && !slices.Contains(known, pools[0]) {
		err = fmt.Errorf("no node has pool %q; there are: %s", pools[0], strings.Join(known, ", "))
	}
	return pools, err
}

// Pools are those that nodes show, by name: of their configuration nothing but that and the scope is known.
func Pools(s nodeapi.Status) (all []poolspec.Pool) {
	for _, n := range s.Nodes {
		for _, p := range n.Pools {
			if !slices.ContainsFunc(all, func(q poolspec.Pool) bool { return q.Name == p.Name }) {
				is := poolspec.Pool{Name: p.Name}
				if p.Shared {
					is.Scope = poolspec.ScopeShared
				}
				all = append(all, is)
			}
		}
	}
	slices.SortFunc(all, func(a, b poolspec.Pool) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// ClaimsOf are the names of the claims that a pod uses.
func ClaimsOf(pod corev1.Pod) (all []string) {
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			all = append(all, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			all = append(all, pod.Name+"-"+v.Name)
		}
	}
	return all
}

func (c claim) delayed() bool {
	return c.class.VolumeBindingMode != nil && *c.class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// id is what csi-provisioner calls the volume.
func (c claim) id() string { return "pvc-" + string(c.UID) }

// typed is a command about the claim.
func (c claim) typed(verb, after string) string {
	return strings.TrimSpace(fmt.Sprintf("kubectl %s pvc %s -n %s %s", verb, c.Name, c.Namespace, after))
}

// bound explains a claim that has, or had, a PersistentVolume.
func (c claim) bound() Answer {
	i := slices.IndexFunc(c.Volumes, func(pv corev1.PersistentVolume) bool { return pv.Name == c.Spec.VolumeName })
	switch {
	case i >= 0 && c.Status.Phase == corev1.ClaimBound:
		return explainVolume(c.Facts, &c.Volumes[i], &c)
	case c.Status.Phase == corev1.ClaimLost:
		return Answer{
			Reason: "VolumeGone", Wrong: true,
			Message: fmt.Sprintf("Lost: its PersistentVolume %s is gone, whatever became of the data.",
				c.Spec.VolumeName),
			Next: []string{
				"See whether the data is still there: kubectl hpp get volumes, kubectl hpp get trash",
				"If it is an orphan: kubectl hpp adopt " + c.Spec.VolumeName + " --node NODE",
				"If it is in the trash: kubectl hpp undelete ENTRY --node NODE",
				"If nobody wants it: " + c.typed("delete", ""),
			},
		}
	}
	return Answer{
		Reason: "OtherDriver", Message: fmt.Sprintf("Bound to PersistentVolume %s, which is none of the driver %s.",
			c.Spec.VolumeName, c.Controller.Driver),
		Next: []string{c.typed("describe", "")},
	}
}

func (c claim) deleted() (Answer, bool) {
	if c.DeletionTimestamp == nil {
		return no()
	}
	if len(c.users) == 0 {
		return trouble("Deleting", fmt.Sprintf("It is being deleted, and waits for its finalizers: %s.",
			strings.Join(c.Finalizers, ", ")), c.typed("get", "-o yaml"))
	}
	return trouble("Deleting", fmt.Sprintf("It is being deleted, and pod %s still uses it.", c.users[0].Name),
		fmt.Sprintf("Delete the pod, too: kubectl delete pod %s -n %s", c.users[0].Name, c.Namespace))
}

// named is for a claim that asks for a certain PersistentVolume.
func (c claim) named() (Answer, bool) {
	if c.Spec.VolumeName == "" {
		return no()
	}
	pv := c.Spec.VolumeName
	i := slices.IndexFunc(c.Volumes, func(v corev1.PersistentVolume) bool { return v.Name == pv })
	if i < 0 {
		return trouble("VolumeMissing", fmt.Sprintf("Pending: it asks for PersistentVolume %s, and driver %s has none "+
			"of that name.", pv, c.Controller.Driver), "kubectl get pv "+pv,
			"If its data is an orphan: kubectl hpp adopt "+pv+" --node NODE")
	}
	of := persistentvolume.Describe(&c.Volumes[i], c.Controller.Driver, c.Controller.TopologyKey).Claim
	if of.Name == "" || of.Name == c.Name && of.Namespace == c.Namespace && (of.UID == "" || of.UID == string(c.UID)) {
		return normal("Binding", fmt.Sprintf("Pending: it asks for PersistentVolume %s, which is %s; Kubernetes binds "+
			"them if size, access modes and class fit.", pv, c.Volumes[i].Status.Phase), "kubectl describe pv "+pv)
	}
	return trouble("VolumeTaken", fmt.Sprintf("Pending: it asks for PersistentVolume %s, which is of claim %s (%s).",
		pv,
		of, of.UID), "kubectl hpp explain pv "+pv)
}

// classless is for a claim without a StorageClass.
func (c claim) classless() (Answer, bool) {
	switch name := c.Spec.StorageClassName; {
	case c.class != nil || len(c.Classes) == 0 && name != nil: // classes could not be read
		return no()
	case name == nil:
		return trouble("NoClass", "Pending: it names no StorageClass, and none is the default.",
			"Make one the default: kubectl annotate storageclass CLASS "+defaultClass+"=true")
	case *name == "":
		return normal("NoClass",
			`Pending: its StorageClass is "", so that it waits for a PersistentVolume without one.`,
			"kubectl get pv")
	default:
		all := make([]string, 0, len(c.Classes))
		for _, class := range c.Classes {
			all = append(all, class.Name)
		}
		return trouble("ClassMissing", fmt.Sprintf("Pending: there is no StorageClass %s; there are: %s.", *name,
			strings.Join(all, ", ")), "Make that class, or the claim anew with one of these.")
	}
}

func (c claim) foreign() (Answer, bool) {
	if c.class == nil || c.class.Provisioner == c.Controller.Driver {
		return no()
	}
	return normal("OtherDriver", fmt.Sprintf("Pending: its StorageClass %s is of %s, not of %s.", c.class.Name,
		c.class.Provisioner, c.Controller.Driver), c.typed("describe", ""))
}

// misnamed is for a class that names no pool of any node.
func (c claim) misnamed() (Answer, bool) {
	if c.unnamed == nil {
		return no()
	}
	return trouble("PoolUnknown", fmt.Sprintf("Pending: %s of StorageClass %s: %v.", names.StoragePoolParameter,
		c.class.Name, c.unnamed),
		"Add the pool to the chart's value storagePools, or delete the class and make it anew: its parameters "+
			"cannot change.")
}

// copied is for a claim whose data is being copied.
func (c claim) copied() (Answer, bool) {
	for _, v := range c.Listed {
		switch {
		case v.ID != c.id() || v.State == "":
		case v.State == nodeapi.NotWhole:
			return normal("CopyWaits", fmt.Sprintf("Pending: its copy on node %s was interrupted, and goes on when "+
				"csi-provisioner asks for it again.", v.Node), c.typed("describe", ""))
		case strings.HasSuffix(v.State, "copied"):
			return normal("Copying", fmt.Sprintf("Pending: its data is being copied to node %s: %s.", v.Node, v.State))
		}
	}
	return no()
}

// unused is for a claim that no pod uses, which is not looked at before one does.
func (c claim) unused() (Answer, bool) {
	if c.class == nil || !c.delayed() || len(c.users) > 0 || c.Annotations[selectedNode] != "" {
		return no()
	}
	return normal("WaitsForPod", fmt.Sprintf("Pending, which is as it should be: no pod uses it, and StorageClass %s "+
		"makes volumes for pods (%s).", c.class.Name, storagev1.VolumeBindingWaitForFirstConsumer),
		"Start a pod that uses the claim.")
}

func (c claim) unserved() (Answer, bool) {
	if c.Away == "" {
		return no()
	}
	return trouble("ControllerAway", fmt.Sprintf("Pending: the controller makes all volumes, and it cannot be "+
		"asked: %s.",
		c.Away), "kubectl hpp doctor", "kubectl get pods -A -l app.kubernetes.io/component=csi-controller -o wide")
}

// sourceAway is for a copy of what is on a node that is not connected.
func (c claim) sourceAway() (Answer, bool) {
	source := c.Spec.DataSourceRef
	if source == nil {
		return no()
	}
	what := source.Kind + " " + source.Name
	if said := lastOf(c.told, "ProvisioningFailed"); strings.Contains(said, "is not connected to the controller") {
		return trouble("SourceAway", fmt.Sprintf("Pending: the node of %s, which it is a copy of, is not connected: %s",
			what, withoutCode(said)), "kubectl hpp get nodes", "Bring the node back: the copy is then made by itself.")
	}
	for _, v := range c.Volumes {
		of := v.Spec.ClaimRef
		if source.Kind != "PersistentVolumeClaim" || of == nil || of.Name != source.Name ||
			of.Namespace != c.Namespace {
			continue
		}
		nodes, _ := persistentvolume.Nodes(&v, c.Controller.TopologyKey)
		for _, name := range nodes {
			if n, known := c.node(name); known && n.State != connected {
				return trouble("SourceAway", fmt.Sprintf("Pending: %s, which it is a copy of, is on node %s, which is "+
					"not connected.", what, name), "kubectl hpp explain node "+name)
			}
		}
	}
	return no()
}

// withoutCode is what the driver has said, without what gRPC puts before it.
func withoutCode(said string) string {
	if _, after, found := strings.Cut(said, "desc = "); found {
		return after
	}
	return said
}

func (c claim) wants() string { return bytesize.Format(c.bytes) }
