package kube

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// The fields of core/v1 objects that the driver reads and writes, named as in the API.
type (
	persistentVolume struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Capacity     map[string]resource.Quantity `json:"capacity"`
			CSI          *csiSource                   `json:"csi"`
			ClaimRef     reference                    `json:"claimRef"`
			NodeAffinity struct {
				Required struct {
					Terms []nodeTerm `json:"nodeSelectorTerms"`
				} `json:"required"`
			} `json:"nodeAffinity"`
		} `json:"spec"`
	}

	csiSource struct {
		Driver           string            `json:"driver"`
		VolumeHandle     string            `json:"volumeHandle"`
		VolumeAttributes map[string]string `json:"volumeAttributes"`
	}

	reference struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
		Namespace  string `json:"namespace,omitempty"`
		Name       string `json:"name,omitempty"`
		UID        string `json:"uid,omitempty"`
	}

	nodeTerm struct {
		Expressions []nodeRequirement `json:"matchExpressions"`
		Fields      []nodeRequirement `json:"matchFields"`
	}

	nodeRequirement struct {
		Key      string   `json:"key"`
		Operator string   `json:"operator"`
		Values   []string `json:"values"`
	}

	event struct {
		Kind                string      `json:"kind"`
		APIVersion          string      `json:"apiVersion"`
		Metadata            reference   `json:"metadata"`
		InvolvedObject      reference   `json:"involvedObject"`
		Type                string      `json:"type"`
		Reason              string      `json:"reason"`
		Message             string      `json:"message"`
		Source              eventSource `json:"source"`
		ReportingController string      `json:"reportingComponent"`
		ReportingInstance   string      `json:"reportingInstance"`
		FirstTimestamp      metav1.Time `json:"firstTimestamp"`
		LastTimestamp       metav1.Time `json:"lastTimestamp"`
		Count               int         `json:"count"`
	}

	podStatus struct {
		Kind       string    `json:"kind"`
		APIVersion string    `json:"apiVersion"`
		Metadata   reference `json:"metadata"`
		Status     struct {
			Conditions []Condition `json:"conditions,omitempty"`
		} `json:"status"`
	}

	eventSource struct {
		Component string `json:"component"`
		Host      string `json:"host"`
	}
)

// isOn reports whether a volume's affinity names a node, by its labels or its name.
func (pv *persistentVolume) isOn(name string, of labels.Set) bool {
	return slices.ContainsFunc(pv.Spec.NodeAffinity.Required.Terms,
		func(t nodeTerm) bool { return t.matches(name, of) })
}

// isByLabels reports whether a volume's affinity asks for another label than the driver's topology key.
func (pv *persistentVolume) isByLabels(key string) bool {
	return slices.ContainsFunc(pv.Spec.NodeAffinity.Required.Terms, func(t nodeTerm) bool {
		return slices.ContainsFunc(t.Expressions, func(r nodeRequirement) bool { return r.Key != key })
	})
}

// matches is true where every requirement is met; a term without any matches no node.
func (t nodeTerm) matches(name string, of labels.Set) bool {
	return len(t.Expressions)+len(t.Fields) > 0 && labelsMatch(t.Expressions, of) &&
		labelsMatch(t.Fields, labels.Set{"metadata.name": name})
}

func labelsMatch(all []nodeRequirement, of labels.Set) bool {
	operators := map[string]selection.Operator{
		"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists,
		"DoesNotExist": selection.DoesNotExist,
		"Gt":           selection.GreaterThan, "Lt": selection.LessThan,
	}
	for _, r := range all {
		requirement, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
		if err != nil || !requirement.Matches(of) { // an unknown operator is an error
			return false
		}
	}
	return true
}

// of reports whether a volume is one of a driver.
func (pv *persistentVolume) of(driver string) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == driver
}

// describe gives all but whether a volume is on this node.
func (pv *persistentVolume) describe(driver, topologyKey string) nodeapi.PersistentVolume {
	capacity, claim, attributes := pv.Spec.Capacity["storage"], pv.Spec.ClaimRef, pv.Spec.CSI.VolumeAttributes
	described := nodeapi.PersistentVolume{
		Name: pv.Name, UID: string(pv.UID), Handle: pv.Spec.CSI.VolumeHandle,
		Pool:  attributes[names.StoragePoolParameter],
		Bytes: capacity.Value(), Released: pv.Annotations[names.ReleaseVolume(driver)],
		Claim: nodeapi.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
	}
	described.Nodes, _ = pv.nodes(topologyKey)
	disposal := store.Disposal(attributes[nodeapi.KeyOnDelete])
	if slices.Contains([]store.Disposal{store.Trash, store.Purge, store.Retain}, disposal) {
		described.OnDelete = string(disposal)
	}
	return described
}

// nodes are those that a volume's affinity names: by the driver's topology key or by name, and by other labels, whose
// values need not be names of nodes. Both are sorted.
func (pv *persistentVolume) nodes(key string) (named, labelled []string) {
	for _, term := range pv.Spec.NodeAffinity.Required.Terms {
		for _, r := range slices.Concat(term.Expressions, term.Fields) {
			switch {
			case r.Operator != "In":
			case r.Key == key, r.Key == metav1.ObjectNameField:
				named = append(named, r.Values...)
			default:
				labelled = append(labelled, r.Values...)
			}
		}
	}
	slices.Sort(named)
	slices.Sort(labelled)
	return slices.Compact(named), slices.Compact(labelled)
}
