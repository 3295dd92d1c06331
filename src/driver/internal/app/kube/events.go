package kube

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// maxEventMessage is what the API takes, in bytes.
	maxEventMessage = 1024
)

// Normal tells people something that is as it should be.
func (c *Client) Normal(reason, message string) { c.event(corev1.EventTypeNormal, reason, message) }

// Warning tells people something that somebody should look at.
func (c *Client) Warning(reason, message string) { c.event(corev1.EventTypeWarning, reason, message) }

// event queues an event on the Node object. There is one when a pool changes its state, so none are counted together as
// client-go's recorder does; the patch library which that needs is a tenth of a binary.
func (c *Client) event(kind, reason, message string) {
	c.mu.Lock()
	node := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: c.NodeName, UID: c.uid}
	c.mu.Unlock()
	now := metav1.Now()
	event := &corev1.Event{
		// Events of objects without a namespace lie in default.
		ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s.%x", c.NodeName, now.UnixNano())},
		InvolvedObject: node, Type: kind, Reason: reason, Message: strings.ToValidUTF8(message[:min(len(message), maxEventMessage)], ""),
		Source: corev1.EventSource{Component: reporter, Host: c.NodeName}, ReportingController: reporter, ReportingInstance: c.NodeName,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	select {
	case c.events <- event:
	default:
		c.Log.Warn("too many events wait for the API; one is dropped", logging.KeyReason, reason, logging.KeyMessage, message)
	}
}

// sendEvents sends what is queued until ctx ends.
func (c *Client) sendEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-c.events:
			if err := c.sendEvent(ctx, event); err != nil && ctx.Err() == nil {
				c.Log.WarnContext(ctx, "cannot send an event", logging.KeyReason, event.Reason, logging.KeyMessage, event.Message, logging.KeyError, err)
			}
		}
	}
}

func (c *Client) sendEvent(ctx context.Context, event *corev1.Event) (err error) {
	for range eventAttempts {
		if err = c.postEvent(ctx, event); err == nil {
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

func (c *Client) postEvent(ctx context.Context, event *corev1.Event) error {
	brief, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err := c.API.Post().Namespace(event.Namespace).Resource("events").Body(event).Do(brief).Error()
	if apierrors.IsAlreadyExists(err) { // an earlier attempt arrived, only its answer did not
		return nil
	}
	return err
}
