package kube

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const (
	// reporter is the component that events come from.
	reporter = "hostpath-provisioner"
	// eventQueue is how many events wait while the API does not answer; what comes then is only logged.
	eventQueue = 1024
	// eventAttempts and eventPause are how often and after what pause an event is sent again.
	eventAttempts = 5
	eventPause    = 2 * time.Second
	// maxMessage is what the API takes in an event, in bytes; what does not fit there is no text for a condition
	// either.
	maxMessage = 1024
)

// Normal reports something that is as it should be.
func (c *Client) Normal(reason, message string) { c.event("Normal", reason, message) }

// Warning reports something that somebody should look at.
func (c *Client) Warning(reason, message string) { c.event("Warning", reason, message) }

// Tell reports something to the owner of a claim that is as it should be.
func (c *Client) Tell(claim nodeapi.Claim, reason, message string) {
	c.TellClaim(claim, "Normal", reason, message)
}

// TellClaim reports something to the owner of a claim; kind is Normal or Warning.
func (r *requests) TellClaim(claim nodeapi.Claim, kind, reason, message string) {
	object := reference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	r.tell(object, kind, reason, message)
}

// event queues an event on the Node object.
func (c *Client) event(kind, reason, message string) {
	object := reference{Kind: "Node", Name: c.NodeName, UID: c.NodeName}
	if node := c.node.Load(); node != nil {
		object.UID = string(node.UID)
	}
	c.tell(object, kind, reason, message)
}

// tell queues an event. There is one when a pool changes its state or a volume is made, so none are counted together
// as client-go's recorder does; the patch library which that needs is a tenth of a binary.
func (r *requests) tell(object reference, kind, reason, message string) {
	object.APIVersion = "v1"
	// Events of objects without a namespace lie in the default one.
	namespace := cmp.Or(object.Namespace, metav1.NamespaceDefault)
	now := metav1.Now()
	e := &event{
		Kind: "Event", APIVersion: "v1",
		Metadata:       reference{Namespace: namespace, Name: fmt.Sprintf("%s.%x", object.Name, now.UnixNano())},
		InvolvedObject: object, Type: kind, Reason: reason, Message: shorten(message),
		Source: eventSource{Component: reporter, Host: r.NodeName}, ReportingController: reporter,
		ReportingInstance: cmp.Or(r.NodeName, r.PodName), FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	select {
	case r.events <- e:
	default:
		r.Log.Warn("too many events wait for the API; one is dropped", logging.KeyReason, reason, logging.KeyMessage,
			message)
	}
}

// shorten shortens a message to what the API takes.
func shorten(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
}

// sendEvents sends what is queued until ctx ends.
func (r *requests) sendEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-r.events:
			if err := r.sendEvent(ctx, e); err != nil && ctx.Err() == nil {
				r.Log.WarnContext(ctx, "cannot send an event", logging.KeyReason, e.Reason, logging.KeyMessage,
					e.Message,
					logging.KeyError, err)
			}
		}
	}
}

func (r *requests) sendEvent(ctx context.Context, e *event) (err error) {
	for range eventAttempts {
		err = r.send(ctx, r.API.core.Post().Namespace(e.Metadata.Namespace).Resource("events"), e)
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

// Condition is one condition of the driver's own pod, named as in the API.
type Condition struct {
	Type    string                 `json:"type"`
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message"`
	// Cause is the reason behind Reason. It is not sent: a new one is a change all the same.
	Cause string `json:"-"`
	// Since is when Status became what it is.
	Since metav1.Time `json:"lastTransitionTime"`
}
