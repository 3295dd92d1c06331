package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// HostPathProvisioner makes directories on the nodes into volumes. One is served in a cluster: that named
// hostpath-provisioner, else the only one there is.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=hostpathprovisioners,scope=Cluster,shortName=hpp
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Progressing",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].status`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="NotServed",type=string,JSONPath=`.status.conditions[?(@.type=="NotServed")].status`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.observedVersion`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HostPathProvisioner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the provisioner should be.
	Spec HostPathProvisionerSpec `json:"spec,omitempty"`
	// What the operator last saw. Written by the operator only.
	Status HostPathProvisionerStatus `json:"status,omitempty"`
}

// HostPathProvisionerList is a list of HostPathProvisioner.
//
// +kubebuilder:object:root=true
type HostPathProvisionerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []HostPathProvisioner `json:"items"`
}

// HostPathProvisionerSpec says where volumes live and on which nodes.
//
// +kubebuilder:validation:XValidation:rule="has(self.pathConfig) != (has(self.storagePools) && size(self.storagePools) > 0)",message="want either storagePools or pathConfig, and not both: storagePools serves CSI volumes; pathConfig also runs the legacy provisioner"
type HostPathProvisionerSpec struct {
	// When the nodes pull the images: Always, IfNotPresent or Never. Without it, or empty, what the operator's base
	// values say.
	//
	// +kubebuilder:validation:Enum="";Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// One directory for the legacy provisioner (hostPath volumes) and for a CSI pool named legacy. For what exists;
	// new installations use storagePools.
	//
	// +optional
	PathConfig *PathConfig `json:"pathConfig,omitempty"`
	// Directories or filesystems on the nodes where CSI volumes live.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	StoragePools []StoragePool `json:"storagePools,omitempty"`
	// On which nodes the provisioner runs. What is set replaces the operator's base values.
	//
	// +optional
	Workload Workload `json:"workload,omitempty"`
	// Features that are off by default. Known: Snapshotting, VolumeSnapshots of the volumes in all pools, where the
	// cluster has the API snapshot.storage.k8s.io/v1. Others are ignored.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +optional
	FeatureGates []string `json:"featureGates,omitempty"`
}

// PathConfig is one directory, served by the legacy provisioner too.
type PathConfig struct {
	// The directory on each node. Absolute.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="the path has to be absolute: begin with /"
	Path string `json:"path"`
	// Name the legacy provisioner's directories <claim>-<volume> instead of <volume>.
	//
	// +optional
	UseNamingPrefix bool `json:"useNamingPrefix,omitempty"`
}

// StoragePool is a directory, or the filesystem mounted there, on each node.
type StoragePool struct {
	// The name that a StorageClass gives in its parameter storagePool. A DNS label.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// The directory on each node. Absolute; not a directory of the system, and not inside another pool.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="the path has to be absolute: begin with /"
	Path string `json:"path"`
	// The filesystem comes from a claim of this shape, which the operator makes: one for each node, or with
	// ReadWriteMany one for all nodes.
	//
	// +optional
	PVCTemplate *corev1.PersistentVolumeClaimSpec `json:"pvcTemplate,omitempty"`
	// reflink turns snapshots on, as the feature gate Snapshotting does: how they are made, each pool's filesystem
	// decides. Others are ignored.
	//
	// +optional
	SnapshotProvider string `json:"snapshotProvider,omitempty"`
	// Name of the StorageClass that is made for a pool whose pvcTemplate has ReadWriteMany, instead of hpp-overlay. For
	// other pools it is ignored.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	OverlayClassName string `json:"overlayClassName,omitempty"`
	// node: each node has its own volumes. shared: one network filesystem everywhere. Default node, or with a
	// pvcTemplate of ReadWriteMany shared.
	//
	// +kubebuilder:validation:Enum=node;shared
	// +optional
	Scope string `json:"scope,omitempty"`
	// New volumes are made only on nodes with these labels. Volumes that exist are served everywhere.
	//
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Use the pool only where a filesystem of its own is mounted at the path.
	//
	// +optional
	RequireMount *bool `json:"requireMount,omitempty"`
	// auto enforces sizes where the filesystem can; required refuses the pool where it cannot; none never does.
	//
	// +kubebuilder:validation:Enum=auto;required;none
	// +optional
	Quota string `json:"quota,omitempty"`
	// What stays free on the filesystem: bytes (10Gi) or a share (5%).
	//
	// +optional
	Reserve *intstr.IntOrString `json:"reserve,omitempty"`
	// How often the pool's bytes may be promised: 1 is never twice.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Overcommit *float64 `json:"overcommit,omitempty"`
	// The most volumes that a node has in this pool. 0 is no limit.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxVolumes int32 `json:"maxVolumes,omitempty"`
	// Let pods have CSI inline ephemeral volumes in this pool.
	//
	// +optional
	Inline bool `json:"inline,omitempty"`
	// Let claims ask for ReadWriteMany and ReadOnlyMany while the nodeSelector selects one node only, as on a cluster
	// of a single node. Not with scope shared, which allows them on all nodes.
	//
	// +optional
	SharedAccess bool `json:"sharedAccess,omitempty"`
	// What happens to deleted volumes.
	//
	// +optional
	Trash *Trash `json:"trash,omitempty"`
}

// Trash says what happens to deleted volumes.
type Trash struct {
	// How long a deleted volume waits before its data is removed, as a Go duration such as 24h. Default 0s.
	//
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Retention string `json:"retention,omitempty"`
	// Remove the oldest deleted volumes before their time when the pool is full. Default false.
	//
	// +optional
	PurgeWhenFull bool `json:"purgeWhenFull,omitempty"`
}

// Workload says on which nodes the DaemonSets run. Nodes that hold volumes must keep matching.
type Workload struct {
	// Labels that a node needs.
	//
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Affinity of the pods.
	//
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// Tolerations of the pods. Without any, the pods tolerate every taint: a volume must stay reachable.
	//
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}
