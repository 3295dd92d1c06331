// Package names is the part of the wire contract that users, PersistentVolumes and other programs already hold: names
// that kubevirt's hostpath-provisioner gave and this project keeps, and the few of our own that outlive a version.
package names

const (
	// Group is the API group of the custom resource, kubevirt's own.
	Group = "hostpathprovisioner.kubevirt.io"
	// CustomResource is the name of the HostPathProvisioner that is served. One of another name is served only where it
	// is alone.
	CustomResource = "hostpath-provisioner"

	// Driver is the default name of the CSI driver (with a dot).
	Driver = "kubevirt.io.hostpath-provisioner"
	// LegacyProvisioner is the provisioner of hostPath PersistentVolumes (with a slash).
	LegacyProvisioner = "kubevirt.io/hostpath-provisioner"
	// LegacyPool is the pool that serves a class without the parameter storagePool, and the one that
	// spec.pathConfig stands for.
	LegacyPool = "legacy"
	// StoragePoolParameter is the StorageClass parameter, and the volume attribute, that names a pool.
	StoragePoolParameter = "storagePool"

	// PoolClaimLabel is the label on a claim that provides a pool with its filesystem. Its value is the pool's name
	// and "-hpp".
	PoolClaimLabel = "kubevirt.io.hostpath-provisioner/storagePool"
	// PoolClaimPrefix is how the name of such a claim begins.
	PoolClaimPrefix = "hpp-pool-"

	// ProvisionOnNode is the annotation that ties a claim, and the hostPath PersistentVolume made for it, to a node.
	ProvisionOnNode = "kubevirt.io/provisionOnNode"
	// LegacyIdentity is the annotation by which the legacy provisioner knows its own PersistentVolumes.
	LegacyIdentity = "hostPathProvisionerIdentity"
	// NetworkFSProvisioner is the default name of torchbox's provisioner of hostPath PersistentVolumes on storage that
	// all nodes have mounted, and its default identity, whatever its name.
	NetworkFSProvisioner = "torchbox.com/hostpath"
	// NetworkFSIdentity is the annotation on its PersistentVolumes with the identity of the instance that made them.
	NetworkFSIdentity = "torchbox.com/hostpath-provisioner-id"
	// NetworkFSDirectory is our annotation on them with the class's pvDir: the class may be gone when they are deleted.
	NetworkFSDirectory = "torchbox.com/hostpath-provisioner-pv-dir"
	// ProvisionedBy is Kubernetes' annotation on a PersistentVolume with the name of the provisioner that made it.
	ProvisionedBy = "pv.kubernetes.io/provisioned-by"

	// Finalizer keeps a HostPathProvisioner until its volumes are gone and its workloads have ended.
	Finalizer = Group + "/volumes"
	// KubevirtFinalizer is what kubevirt's operator leaves on a HostPathProvisioner; nobody else would ever remove it.
	KubevirtFinalizer = "finalizer.delete.hostpath-provisioner"
	// ForceDelete is the annotation on a HostPathProvisioner that lets it, or a pool of it, go although
	// PersistentVolumes are left. Its value has to be "true".
	ForceDelete = Group + "/delete-with-volumes"
	// OwnedBy is the label on every object that the operator applies. Its value is CustomResource.
	OwnedBy = Group + "/owned-by"

	// PoolLabel is on the mounters and claims of a pool with a pvcTemplate. Its value is the pool's name.
	PoolLabel = Group + "/pool"
	// MountLabel is on a mounter and its pods: a hash of the pool and the node.
	MountLabel = Group + "/mount"
	// NodeAnnotation is on the mounters and claims of a pool with a pvcTemplate. Its value is the name of the node that
	// they are for, which may be longer than a label.
	NodeAnnotation = Group + "/node"
	// AppliedBy is the annotation on the CustomResourceDefinition with the version of the operator that applied it. An
	// older one leaves it alone.
	AppliedBy = Group + "/applied-by"

	// PoolCondition is the prefix of the conditions on the driver's pods, one for each pool: PoolCondition + the
	// pool's name. Status True: the pool is there. The reason says more (PoolPresent, PoolDegraded, PoolAbsent,
	// PoolNotSelected, PoolUnknown).
	PoolCondition = "pool." + Group + "/"
)

const (
	// EveryNodeProvisioner is the default name of the provisioner of volumes that are on every node, kubeboost's own.
	EveryNodeProvisioner = "kubeboost.github.com/hostpath-multihost-provisioner"
	// EveryNodeManager is the name of the Service of its managers, and the audience of the token by which the
	// provisioner shows them who it is.
	EveryNodeManager = "hostpath-multihost-manager"
	// EveryNodePort is where the Service and the managers listen.
	EveryNodePort = "8080"
)

// EveryNodeIdentity is the annotation by which such a provisioner knows its own PersistentVolumes.
func EveryNodeIdentity(provisioner string) string { return provisioner + "-identity" }

// ReusePolicy is the annotation on a StorageClass, and then on its PersistentVolumes, that says which claim may have a
// retained volume next.
func ReusePolicy(provisioner string) string { return provisioner + "-reuse-policy" }

// WaitsFor is the annotation on a deleted PersistentVolume with the nodes that may have its directory still.
func WaitsFor(provisioner string) string { return provisioner + "-waits-for" }

// ReleaseVolume is the annotation on a PersistentVolume by which an administrator gives up what is on a node's disk.
// Its value is that node's name.
func ReleaseVolume(driver string) string { return driver + "/release-volume" }

// Reasons of the conditions on the driver's pods.
const (
	PoolPresent = "PoolPresent"
	// PoolDegraded: its volumes are served, and none can be made, or nothing keeps them to their sizes.
	PoolDegraded    = "PoolDegraded"
	PoolAbsent      = "PoolAbsent"
	PoolNotSelected = "PoolNotSelected"
	// PoolUnknown: the node has not been connected to the controller for its grace. The status is Unknown.
	PoolUnknown = "PoolUnknown"
)

// MovedTo is the annotation on a claim whose volume was moved. Its value is the name of the node that it was moved to.
func MovedTo(driver string) string { return driver + "/moved-to" }
