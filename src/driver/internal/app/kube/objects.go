package kube

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
)

// The fields of core/v1 objects that the driver reads and writes, named as in the API.
type (
	persistentVolume struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
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

	persistentVolumeList struct {
		Metadata struct {
			Continue string `json:"continue"`
		} `json:"metadata"`
		Items []persistentVolume `json:"items"`
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
		FirstTimestamp      time.Time   `json:"firstTimestamp"`
		LastTimestamp       time.Time   `json:"lastTimestamp"`
		Count               int         `json:"count"`
	}

	podStatus struct {
		Kind       string    `json:"kind"`
		APIVersion string    `json:"apiVersion"`
		Metadata   reference `json:"metadata"`
		Status     struct {
			Conditions []podCondition `json:"conditions,omitempty"`
		} `json:"status"`
	}

	podCondition struct {
		Type               string    `json:"type"`
		Status             string    `json:"status"`
		Reason             string    `json:"reason"`
		Message            string    `json:"message"`
		LastTransitionTime time.Time `json:"lastTransitionTime"`
	}

	eventSource struct {
		Component string `json:"component"`
		Host      string `json:"host"`
	}
)

// isOn reports whether a volume's affinity names a node, by its labels or its name.
func (pv *persistentVolume) isOn(name string, of labels.Set) bool {
	return slices.ContainsFunc(pv.Spec.NodeAffinity.Required.Terms, func(t nodeTerm) bool { return t.matches(name, of) })
}

// matches is true where every requirement is met; a term without any matches no node.
func (t nodeTerm) matches(name string, of labels.Set) bool {
	if len(t.Expressions)+len(t.Fields) == 0 {
		return false
	}
	unmet := func(of labels.Set) func(nodeRequirement) bool {
		return func(r nodeRequirement) bool { return !r.met(of) }
	}
	return !slices.ContainsFunc(t.Expressions, unmet(of)) &&
		!slices.ContainsFunc(t.Fields, unmet(labels.Set{"metadata.name": name}))
}

func (r nodeRequirement) met(of labels.Set) bool {
	operator, ok := map[string]selection.Operator{
		"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists, "DoesNotExist": selection.DoesNotExist,
		"Gt": selection.GreaterThan, "Lt": selection.LessThan,
	}[r.Operator]
	if !ok {
		return false
	}
	requirement, err := labels.NewRequirement(r.Key, operator, r.Values)
	return err == nil && requirement.Matches(of)
}

func (c *Client) describe(pv *persistentVolume) pool.PersistentVolume {
	capacity, claim, attributes := pv.Spec.Capacity["storage"], pv.Spec.ClaimRef, pv.Spec.CSI.VolumeAttributes
	described := pool.PersistentVolume{
		Name: pv.Metadata.Name, Handle: pv.Spec.CSI.VolumeHandle, Pool: attributes[attributePool],
		Here: pv.isOn(c.NodeName, c.nodeLabels()), Nodes: pv.nodes(c.TopologyKey), Bytes: capacity.Value(),
		Claim: records.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
	}
	disposal := records.Disposal(attributes[attributeOnDelete])
	if slices.Contains([]records.Disposal{records.Trash, records.Purge, records.Retain}, disposal) {
		described.OnDelete = disposal
	}
	return described
}

// nodes are those that a volume's affinity names by the driver's topology key, or else by another, sorted.
func (pv *persistentVolume) nodes(key string) (nodes []string) {
	var others []string
	for _, term := range pv.Spec.NodeAffinity.Required.Terms {
		for _, r := range slices.Concat(term.Expressions, term.Fields) {
			switch {
			case r.Operator != "In":
			case r.Key == key:
				nodes = append(nodes, r.Values...)
			default:
				others = append(others, r.Values...)
			}
		}
	}
	if len(nodes) == 0 {
		nodes = others
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
