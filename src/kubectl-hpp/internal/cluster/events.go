package cluster

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

// Events gives what was said about an object that has these of kind, namespace, name and UID, the oldest first, and
// which right is missing for that.
func Events(
	ctx context.Context, api kubernetes.Interface, about corev1.ObjectReference,
) (events []corev1.Event, missing string, err error) {
	var wanted []string
	for field, value := range map[string]string{
		"kind": about.Kind, "namespace": about.Namespace, "name": about.Name, "uid": string(about.UID),
	} {
		if value != "" {
			wanted = append(wanted, "involvedObject."+field+"="+value)
		}
	}
	slices.Sort(wanted)
	list := paged(api.CoreV1().Events(about.Namespace).List)
	missing, err = listing{
		"events", within(about.Namespace),
		func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = strings.Join(wanted, ",")
			return list(ctx, options)
		},
		into(&events, func(e *corev1.Event) bool {
			is := e.InvolvedObject
			return is.Kind == about.Kind && is.Name == about.Name && (about.UID == "" || is.UID == about.UID)
		}),
	}.read(ctx)
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return Last(a).Compare(Last(b)) })
	return events, missing, err
}

// Last is when an event happened last.
func Last(e corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}
