package controller

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/platform"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/render"
)

// begins counts what is watched, ends what is forgotten; both fail when they are told to. All else panics.
type begins struct {
	controller.Controller
	err   error
	count int
}

func (b *begins) Watch(source.Source) error {
	b.count++
	return b.err
}

type ends struct {
	cache.Cache
	err   error
	count int
}

func (e *ends) RemoveInformer(context.Context, client.Object) error {
	e.count++
	return e.err
}

type serves struct{ kinds []schema.GroupVersionKind }

func (s *serves) Facts() platform.Facts {
	served := sets.New[string]()
	for _, kind := range s.kinds {
		served.Insert(render.APIVersion(kind))
	}
	return platform.Facts{APIVersions: sets.List(served)}
}

// What could not be watched is not taken for watched: the next pass tries again, and only that.
func TestFollowTriesAgain(t *testing.T) {
	t.Parallel()
	begins, ends, cluster := &begins{}, &ends{}, &serves{}
	r := New(Options{Rendered: ends, Platform: cluster, Ready: &gauge{}})
	r.controller = begins
	all := len(render.Kinds())
	for _, step := range []struct {
		what           string
		err            error
		kinds          []schema.GroupVersionKind
		begun, stopped int
	}{
		{"nothing can be watched", errors.New("no"), render.Kinds(), all, 0},
		{"again", nil, render.Kinds(), all, 0},
		{"all is watched", nil, render.Kinds(), 0, 0},
		{"a kind goes, and its cache cannot be stopped", errors.New("no"), render.Kinds()[1:], 0, 1},
		{"again", nil, render.Kinds()[1:], 0, 1},
		{"it is gone", nil, render.Kinds()[1:], 0, 0},
		{"it comes back", nil, render.Kinds(), 1, 0},
	} {
		begins.err, begins.count, ends.err, ends.count = step.err, 0, step.err, 0
		cluster.kinds = step.kinds
		if err := r.follow(t.Context()); (err != nil) != (step.err != nil) {
			t.Errorf("%s: error %v, want %v", step.what, err, step.err)
		}
		if begins.count != step.begun || ends.count != step.stopped {
			t.Errorf("%s: %d watches begun and %d stopped, want %d and %d", step.what, begins.count, ends.count,
				step.begun, step.stopped)
		}
	}
}
