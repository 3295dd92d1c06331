package nodeapi

import (
	"errors"
	"time"
)

// ControllerAudience is the audience of the tokens by which nodes show the controller who they are.
const ControllerAudience = "hostpath-provisioner-controller"

// Errors of what Kubernetes says.
var (
	ErrClusterUnknown = errors.New("the Kubernetes API did not answer")
	ErrNamed          = errors.New("a PersistentVolume names the volume")
)

// PersistentVolume is what the cluster says about a volume of this driver.
type PersistentVolume struct {
	Name, UID string
	Handle    string // volumeHandle, our id
	Pool      string // attribute storagePool; "" on PVs that name none
	// Here reports that the node affinity names this node; Nodes are those that it names by the driver's topology key.
	Here  bool
	Nodes []string
	Bytes int64 // capacity
	// OnDelete is the attribute of that name where the PV has a valid one, else "".
	OnDelete string
	// Released is the node that the annotation <driver name>/release-volume names, "" without one.
	Released string
	Claim    Claim
}

// Claim is the PersistentVolumeClaim, or for an inline volume the pod, that a volume was made for.
type Claim struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// String is namespace/name, "" for no claim.
func (c Claim) String() string {
	if c.Name == "" {
		return ""
	}
	return c.Namespace + "/" + c.Name
}

// WaitingClaim is a claim of one of the driver's StorageClasses that has no volume.
type WaitingClaim struct {
	Claim Claim
	Pool  string // the class's storagePool
	Bytes int64
	Since time.Time // its creation
}

// Event is what somebody should know or look at.
type Event struct {
	Kind            string // Normal or Warning
	Reason, Message string
	// Key and Since make an event that is sent only once, also by replicas and after a restart; Since is then its time.
	// Both are empty for one that is new each time.
	Key   string
	Since time.Time
}
