package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types of the conditions in a status.
const (
	// Available: the driver runs on every node that it should.
	Available = "Available"
	// Progressing: something is being rolled out or removed.
	Progressing = "Progressing"
	// Degraded: something is wrong, and the message says what to do.
	Degraded = "Degraded"
	// NotServed: the spec asks for something that this version accepts and does not serve, or
	// a class of the base values was left out.
	NotServed = "NotServed"
	// Deleting: the resource waits for a gate. Only while it is being deleted.
	Deleting = "Deleting"
)

// HostPathProvisionerStatus is what the operator last saw.
type HostPathProvisionerStatus struct {
	// Available, Progressing, Degraded; NotServed and Deleting where they apply.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// The generation of the spec that this status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Version of the operator.
	//
	// +optional
	OperatorVersion string `json:"operatorVersion,omitempty"`
	// Version that is being rolled out.
	//
	// +optional
	TargetVersion string `json:"targetVersion,omitempty"`
	// Version that runs on every node.
	//
	// +optional
	ObservedVersion string `json:"observedVersion,omitempty"`
	// State of each pool.
	//
	// +listType=map
	// +listMapKey=name
	// +optional
	StoragePoolStatuses []StoragePoolStatus `json:"storagePoolStatuses,omitempty"`
}

// StoragePoolPhase is the state of a pool over all nodes.
//
// +kubebuilder:validation:Enum=Preparing;Ready;Degraded
type StoragePoolPhase string

const (
	// PoolPreparing says that not every node has reported the pool yet.
	PoolPreparing StoragePoolPhase = "Preparing"
	// PoolReady says that the pool is there on every node that should have it.
	PoolReady StoragePoolPhase = "Ready"
	// PoolDegraded says that a node reports the pool as absent, or as in trouble.
	PoolDegraded StoragePoolPhase = "Degraded"
)

// StoragePoolStatus is the state of one pool.
type StoragePoolStatus struct {
	// The pool's name.
	Name string `json:"name"`
	// Preparing, Ready or Degraded.
	Phase StoragePoolPhase `json:"phase"`
	// Why the pool is in that phase, with the nodes where something is wrong. Empty when Ready.
	//
	// +optional
	Message string `json:"message,omitempty"`
	// Nodes that should have the pool.
	//
	// +optional
	DesiredReady int32 `json:"desiredReady,omitempty"`
	// Nodes that have it.
	//
	// +optional
	CurrentReady int32 `json:"currentReady,omitempty"`
	// The claims of a pool with pvcTemplate, those that are not bound first; at most 2000 over all pools.
	//
	// +listType=map
	// +listMapKey=name
	// +optional
	ClaimStatuses []ClaimStatus `json:"claimStatuses,omitempty"`
}

// ClaimStatus is the state of a claim that provides a pool on a node, or on all.
type ClaimStatus struct {
	// The claim's name, in the operator's namespace.
	Name string `json:"name"`
	// The node that it is for. Empty for the claim that all nodes share, or if there is no such node any more.
	//
	// +optional
	Node string `json:"node,omitempty"`
	// The claim's status.
	Status corev1.PersistentVolumeClaimStatus `json:"status"`
}
