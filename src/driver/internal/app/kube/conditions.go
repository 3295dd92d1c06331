package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Condition is one condition of the driver's own pod.
type Condition struct {
	Type    string
	True    bool
	Reason  string
	Message string
	// Cause is the reason behind Reason. It is not sent: a new one is a change all the same.
	Cause string
	// Since is when True became what it is.
	Since time.Time
}

// Report makes these the conditions that the driver has on its own pod, in one request. It is a server-side apply, so
// conditions of earlier reports that are not among them go, and everybody else's stay.
func (c *Client) Report(ctx context.Context, conditions []Condition) error {
	pod := podStatus{Kind: "Pod", APIVersion: "v1", Metadata: reference{Name: c.PodName, Namespace: c.PodNamespace}}
	for _, condition := range conditions {
		status := "False"
		if condition.True {
			status = "True"
		}
		pod.Status.Conditions = append(pod.Status.Conditions, podCondition{
			Type: condition.Type, Status: status, Reason: condition.Reason, Message: cut(condition.Message),
			LastTransitionTime: condition.Since.UTC().Truncate(time.Second), // the API takes no fractions here
		})
	}
	body, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	brief, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err = c.API.core.Patch(types.ApplyYAMLPatchType).
		Namespace(c.PodNamespace).Resource("pods").Name(c.PodName).SubResource("status").
		Param("fieldManager", reporter).Param("force", "true").Body(body).Do(brief).Error()
	if err != nil {
		return fmt.Errorf("apply the conditions of pod %s/%s: %w", c.PodNamespace, c.PodName, err)
	}
	return nil
}
