package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

const (
	// reporter is the component that events come from.
	reporter = "hostpath-provisioner"
	// eventQueue is how many events wait while the API does not answer; what comes then is only logged.
	eventQueue = 64
	// eventAttempts and eventPause are how often and after what pause an event is sent again.
	eventAttempts = 5
	eventPause    = 2 * time.Second
	// maxMessage is what the API takes in an event, in bytes; what does not fit there is no text for a condition either.
	maxMessage = 1024
)

// Normal reports something that is as it should be.
func (c *Client) Normal(reason, message string) { c.event("Normal", reason, message) }

// Warning reports something that somebody should look at.
func (c *Client) Warning(reason, message string) { c.event("Warning", reason, message) }

// Tell reports something to the owner of a claim that is as it should be.
func (c *Client) Tell(claim records.Claim, reason, message string) {
	object := reference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	c.eventOn(object, "Normal", reason, message)
}

// event queues an event on the Node object.
func (c *Client) event(kind, reason, message string) {
	c.mu.Lock()
	node := reference{Kind: "Node", Name: c.NodeName, UID: string(c.uid)}
	c.mu.Unlock()
	c.eventOn(node, kind, reason, message)
}

// eventOn queues an event. There is one when a pool changes its state or a volume is made, so none are counted together
// as client-go's recorder does; the patch library which that needs is a tenth of a binary.
func (c *Client) eventOn(object reference, kind, reason, message string) {
	object.APIVersion = "v1"
	// Events of objects without a namespace lie in the default one.
	namespace := cmp.Or(object.Namespace, metav1.NamespaceDefault)
	now := time.Now().UTC().Truncate(time.Second) // the API takes no fractions here
	e := &event{
		Kind: "Event", APIVersion: "v1",
		Metadata:       reference{Namespace: namespace, Name: fmt.Sprintf("%s.%x", object.Name, time.Now().UnixNano())},
		InvolvedObject: object, Type: kind, Reason: reason, Message: cut(message),
		Source: eventSource{Component: reporter, Host: c.NodeName}, ReportingController: reporter,
		ReportingInstance: c.NodeName, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	select {
	case c.events <- e:
	default:
		c.Log.Warn("too many events wait for the API; one is dropped", logging.KeyReason, reason, logging.KeyMessage, message)
	}
}

// cut shortens a message to what the API takes.
func cut(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
}

// sendEvents sends what is queued until ctx ends.
func (c *Client) sendEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-c.events:
			if err := c.sendEvent(ctx, e); err != nil && ctx.Err() == nil {
				c.Log.WarnContext(ctx, "cannot send an event", logging.KeyReason, e.Reason, logging.KeyMessage, e.Message,
					logging.KeyError, err)
			}
		}
	}
}

func (c *Client) sendEvent(ctx context.Context, e *event) (err error) {
	for range eventAttempts {
		err = c.send(ctx, c.API.core.Post().Namespace(e.Metadata.Namespace).Resource("events"), e)
		if err == nil || apierrors.IsAlreadyExists(err) { // an earlier attempt arrived, only its answer did not
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(eventPause):
		}
	}
	return err
}

func (c *Client) send(ctx context.Context, request *rest.Request, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	brief, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return request.Body(body).Do(brief).Error()
}

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
	request := c.API.core.Patch(types.ApplyYAMLPatchType).
		Namespace(c.PodNamespace).Resource("pods").Name(c.PodName).SubResource("status").
		Param("fieldManager", reporter).Param("force", "true")
	if err := c.send(ctx, request, pod); err != nil {
		return fmt.Errorf("apply the conditions of pod %s/%s: %w", c.PodNamespace, c.PodName, err)
	}
	return nil
}
