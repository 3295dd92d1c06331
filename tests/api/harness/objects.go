package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// waitTimeout is for what takes a second or two; nothing is said about speed by it.
	waitTimeout = 3 * time.Minute
	interval    = 100 * time.Millisecond
)

// Eventually tries until there is no error, and fails the test with the last one when waitTimeout is over.
func Eventually(t *testing.T, what string, try func(ctx context.Context) error) {
	t.Helper()
	EventuallyWith(t.Context(), t, what, try)
}

// EventuallyWith is Eventually with another context than the test's: that one is over when clean-up begins.
func EventuallyWith(ctx context.Context, t *testing.T, what string, try func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		// A try that was cut short by the end of waitTimeout says less than the one before.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: not within %s (%v): %v", what, waitTimeout, err, last)
	}
}

// Create makes objects; an error ends the test.
func (s *Server) Create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := s.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}

// Get reads an object by the name and namespace that it already has, and gives it back.
func Get[T client.Object](t *testing.T, s *Server, object T) T {
	t.Helper()
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatalf("get %T %s: %v", object, client.ObjectKeyFromObject(object), err)
	}
	return object
}

// Change reads an object, changes it and writes it, again after a conflict.
func Change[T client.Object](t *testing.T, s *Server, object T, change func(T)) {
	t.Helper()
	if err := tryChange(t, s, object, change); err != nil {
		t.Fatalf("change %T %s: %v", object, object.GetName(), err)
	}
}

// ChangeRefused is Change for what has to be refused; it gives the refusal.
func ChangeRefused[T client.Object](t *testing.T, s *Server, object T, change func(T)) error {
	t.Helper()
	err := tryChange(t, s, object, change)
	if err == nil {
		t.Fatalf("change %T %s: it was accepted", object, object.GetName())
	}
	return err
}

func tryChange[T client.Object](t *testing.T, s *Server, object T, change func(T)) error {
	t.Helper()
	for {
		Get(t, s, object)
		change(object)
		if err := s.Client.Update(t.Context(), object); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// Delete removes an object now. One that is not there ends the test.
func (s *Server) Delete(t *testing.T, object client.Object, options ...client.DeleteOption) {
	t.Helper()
	if err := s.Client.Delete(t.Context(), object, options...); err != nil {
		t.Fatalf("delete %T %s: %v", object, object.GetName(), err)
	}
}

// Gone waits until an object is not there any more.
func (s *Server) Gone(t *testing.T, object client.Object) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%T %s is gone", object, object.GetName()), func(ctx context.Context) error {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is there, deleted at %v, finalizers %v", object.GetDeletionTimestamp(),
			object.GetFinalizers())
	})
}

// Until waits for a state of an object, reading it again and again by the name and namespace that it already has.
func Until[T client.Object](t *testing.T, s *Server, what string, object T, reached func(T) error) T {
	t.Helper()
	Eventually(t, what, func(ctx context.Context) error {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		return reached(object)
	})
	return object
}

// Pods are the pods of a DaemonSet of the release, by its component label.
func (s *Server) Pods(ctx context.Context, component string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := s.Client.List(ctx, &pods, client.InNamespace(Namespace), client.MatchingLabels{
		"app.kubernetes.io/component": component,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("list pods of %s: %w", component, err)
	}
	return pods.Items, nil
}
