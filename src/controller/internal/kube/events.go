package kube

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

const (
	// eventQueue is how many events wait while the API does not answer; what comes then is only logged.
	eventQueue = 1024
	// eventAttempts and eventPause are how often and after what pause an event is sent again.
	eventAttempts = 5
	eventPause    = 2 * time.Second
	// maxMessage is what the API takes in an event, in bytes; what does not fit there is no text for a condition
	// either.
	maxMessage = 1024
)

// TellClaim reports something to the owner of a claim; kind is Normal or Warning.
func (c *Cluster) TellClaim(claim nodeapi.Claim, kind, reason, message string) {
	c.AboutClaim(claim, nodeapi.Event{Kind: kind, Reason: reason, Message: message})
}

// AboutClaim reports something to the owner of a claim.
func (c *Cluster) AboutClaim(claim nodeapi.Claim, e nodeapi.Event) {
	c.queueEvent(corev1.ObjectReference{
		Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: types.UID(claim.UID),
	}, e)
}

// TellNode reports something on a Node object, where this replica leads; kind is Normal or Warning.
func (c *Cluster) TellNode(name, kind, reason, message string) {
	if c.Leads() {
		c.AboutNode(name, nodeapi.Event{Kind: kind, Reason: reason, Message: message})
	}
}

// AboutNode reports something on a Node object.
func (c *Cluster) AboutNode(name string, e nodeapi.Event) {
	c.mu.Lock()
	uid := c.nodes[name].uid
	c.mu.Unlock()
	c.queueEvent(corev1.ObjectReference{Kind: "Node", Name: name, UID: types.UID(uid)}, e)
}

// TellVolume reports something on a PersistentVolume that somebody should look at.
func (c *Cluster) TellVolume(pv nodeapi.PersistentVolume, reason, message string) {
	c.queueEvent(corev1.ObjectReference{Kind: "PersistentVolume", Name: pv.Name, UID: types.UID(pv.UID)},
		nodeapi.Event{Kind: corev1.EventTypeWarning, Reason: reason, Message: message})
}

// queueEvent queues an event about an object. client-go's recorder gives it a name of its own, so that nothing could
// be said only once.
func (c *Cluster) queueEvent(about corev1.ObjectReference, e nodeapi.Event) {
	about.APIVersion = "v1"
	now := time.Now()
	at := metav1.NewTime(cmp.Or(e.Since, now))
	name := fmt.Sprintf("%s.%x", about.Name, at.UnixNano())
	if e.Key != "" {
		hash := fnv.New64a()
		_, _ = fmt.Fprint(hash, e.Key, at.UnixNano())
		name = fmt.Sprintf("%s.%x", about.Name, hash.Sum64())
	}
	if at.After(now) { // the node's clock
		at = metav1.NewTime(now)
	}
	event := &corev1.Event{
		// Events of objects without a namespace lie in the default one.
		ObjectMeta:     metav1.ObjectMeta{Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault), Name: name},
		InvolvedObject: about, Type: e.Kind, Reason: e.Reason, Message: shorten(e.Message),
		Source:              corev1.EventSource{Component: manager},
		ReportingController: manager, ReportingInstance: c.PodName, FirstTimestamp: at, LastTimestamp: at, Count: 1,
	}
	select {
	case c.events <- event:
	default:
		c.Log.Warn("too many events wait for the API; one is dropped", logging.KeyReason, e.Reason, logging.KeyMessage,
			e.Message)
	}
}

// shorten shortens a message to what the API takes.
func shorten(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
}

// sendEvents sends what is queued until ctx ends.
func (c *Cluster) sendEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-c.events:
			if err := c.sendEvent(ctx, e); err != nil && ctx.Err() == nil {
				c.Log.WarnContext(ctx, "cannot send an event", logging.KeyReason, e.Reason, logging.KeyMessage,
					e.Message, logging.KeyError, err)
			}
		}
	}
}

func (c *Cluster) sendEvent(ctx context.Context, e *corev1.Event) (err error) {
	for range eventAttempts {
		_, err = c.api.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
		switch {
		case err == nil, apierrors.IsAlreadyExists(err): // it was sent before, perhaps just now without an answer
			return nil
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(eventPause):
		}
	}
	return err
}
