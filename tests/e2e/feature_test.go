package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/e2e-framework/klient/k8s"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/features"
)

const (
	// waitTimeout is for what takes seconds; nothing is said about speed by it.
	waitTimeout = 5 * time.Minute
	interval    = 300 * time.Millisecond
	// steady is how long something that must not happen is watched for, where nothing says that it will not.
	steady = 6 * time.Second
)

// ofFeature is the label on the namespaces of features.
const ofFeature = "e2e.hostpath-provisioner/test"

// step is a part of a feature: the first that fails ends the feature.
type step struct {
	name string
	do   func(s *scene)
}

// scene is what a step works with: the cluster, and a namespace that the
// feature has to itself.
type scene struct {
	*suite
	t         *quoting   // of the step
	top       *testing.T // of the feature
	ctx       context.Context
	namespace string
	// since is when the feature began: events from before are not its own.
	since time.Time
}

// alone runs a feature that disturbs others.
func alone(t *testing.T, what string, steps ...step) {
	t.Helper()
	world.settle(t)
	world.mustBePlain(t, false)
	world.run(t, what, steps)
}

// replacing runs a feature that makes the release it wants, whatever is there: installOperator, or bare and install.
func replacing(t *testing.T, what string, steps ...step) {
	t.Helper()
	world.settle(t)
	world.run(t, what, steps)
}

// nightly leaves a feature to the runs of every night, by HPP_E2E. It says so, and the end of the run does again. Call
// it first: tests that are left out never run beside each other then.
func nightly(t *testing.T) {
	t.Helper()
	if world.nightly {
		return
	}
	world.leftForTheNight = append(world.leftForTheNight, t.Name())
	t.Skip("runs every night: HPP_E2E=nightly, or make e2e-nightly")
}

// parallel runs a feature beside others, after all that run alone.
func parallel(t *testing.T, what string, steps ...step) {
	t.Helper()
	t.Parallel()
	world.mustBePlain(t, true)
	world.run(t, what, steps)
}

// settle waits until the volumes of earlier features are deleted: a feature that runs alone may take the driver away.
// It does not wait for ever, because an earlier feature may have failed: what that has left is an error.
func (s *suite) settle(t *testing.T) {
	t.Helper()
	var left []string
	err := wait.PollUntilContextTimeout(s.inTime(t), interval, waitTimeout, true,
		func(ctx context.Context) (bool, error) {
			var namespaces corev1.NamespaceList
			var volumes corev1.PersistentVolumeList
			if err := errors.Join(s.api.List(ctx, &namespaces, resources.WithLabelSelector(ofFeature)),
				s.api.List(ctx, &volumes)); err != nil {
				return false, err
			}
			left = nil
			for _, n := range namespaces.Items {
				if n.Status.Phase == corev1.NamespaceTerminating {
					left = append(left, "namespace/"+n.Name)
				}
			}
			for _, v := range volumes.Items {
				if v.Status.Phase == corev1.VolumeReleased {
					left = append(left, "persistentvolume/"+v.Name)
				}
			}
			return len(left) == 0, nil
		})
	if err != nil {
		t.Errorf("earlier features left %s (%v)", strings.Join(left, " "), err)
	}
}

func (s *suite) run(t *testing.T, what string, steps []step) {
	t.Helper()
	if !time.Now().Before(s.until) {
		t.Fatal("the time of this run is over")
	}
	sc := scene{suite: s, t: &quoting{T: t}, top: t, ctx: s.inTime(t), since: time.Now().Truncate(time.Second)}
	sc.makeNamespace()
	feature := features.New(what)
	for i, st := range steps {
		feature.Assess(fmt.Sprintf("%d_%s", i+1, st.name),
			func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
				t.Helper()
				now := sc
				now.t, now.ctx = &quoting{T: t}, s.inTime(t)
				defer func() {
					if t.Failed() {
						// Here, because what the feature made is gone once it is over.
						kept := s.collect(ctx, parentOf(t), st.name, sc.namespace)
						t.Logf("artifacts: %s\nThe errors again:\n%s", kept, now.t.said())
					}
				}()
				st.do(&now)
				return ctx
			})
	}
	s.env.Test(t, feature.Feature())
}

func parentOf(t *testing.T) string {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	return test
}

func (s *scene) makeNamespace() {
	s.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-",
		Labels:       map[string]string{ofFeature: strings.ToLower(s.t.Name())},
	}}
	if err := s.api.Create(s.ctx, ns); err != nil {
		s.t.Fatal(err)
	}
	s.namespace = ns.Name
	s.whenDone(func(ctx context.Context) error { return s.api.Delete(ctx, ns) })
}

// cordon keeps new pods off a node, at most until the feature is done.
func (s *scene) cordon(node string) {
	s.t.Helper()
	s.kubectl("cordon", node)
	s.whenDone(func(ctx context.Context) error {
		_, err := s.cluster.Kubectl(ctx, nil, "uncordon", node)
		return err
	})
}

// whenDone registers what undoes a change once the feature is over, at the
// moment of the change. A failed feature stays as it is when E2E_KEEP is set.
func (s *scene) whenDone(undo func(ctx context.Context) error) {
	s.top.Helper()
	s.top.Cleanup(func() {
		if s.keep && s.top.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), waitTimeout)
		defer cancel()
		if err := undo(ctx); err != nil {
			s.top.Errorf("clean up: %v", err)
		}
	})
}

// must ends the step on an error.
func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// create makes an object, in the feature's namespace if it is to be in one.
func (s *scene) create(o k8s.Object) {
	s.t.Helper()
	if err := s.api.Create(s.ctx, o); err != nil {
		s.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

func (s *scene) remove(o k8s.Object) {
	s.t.Helper()
	if err := s.api.Delete(s.ctx, o); err != nil {
		s.t.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

// check reports whether something is so, and what there is instead.
type check func() (ok bool, instead string)

// eventually waits until something is so.
func (s *scene) eventually(what string, is check) {
	s.t.Helper()
	s.within(waitTimeout, what, is)
}

func (s *scene) within(limit time.Duration, what string, is check) {
	s.t.Helper()
	instead := "nothing is known"
	err := wait.PollUntilContextTimeout(s.ctx, interval, limit, true, func(context.Context) (bool, error) {
		var ok bool
		ok, instead = is()
		return ok, nil
	})
	if err != nil {
		s.t.Fatalf("waited %s for this: %s; instead: %s", limit, what, instead)
	}
}

// stays watches for a while that something goes on being so.
func (s *scene) stays(what string, is check) {
	s.t.Helper()
	var broken string
	err := wait.PollUntilContextTimeout(s.ctx, interval, steady, true, func(context.Context) (bool, error) {
		ok, instead := is()
		if !ok {
			broken = instead
		}
		return !ok, nil
	})
	if err == nil {
		s.t.Fatalf("did not stay so: %s; instead: %s", what, broken)
	}
}

// kubectl runs kubectl as administrator.
func (s *scene) kubectl(args ...string) string {
	s.t.Helper()
	out, err := s.cluster.Kubectl(s.ctx, nil, args...)
	s.must(err)
	return out
}

// apply makes the objects of a manifest.
func (s *scene) apply(manifest string) {
	s.t.Helper()
	_, err := s.cluster.Kubectl(s.ctx, bytes.NewBufferString(manifest), "apply", "--filename", "-")
	s.must(err)
}

// removeWhenDone removes what a manifest made, once the feature is over.
func (s *scene) removeWhenDone(manifest string) {
	s.t.Helper()
	s.whenDone(func(ctx context.Context) error {
		_, err := s.cluster.Kubectl(ctx, strings.NewReader(manifest), "delete", "--ignore-not-found", "--wait=false",
			"--filename", "-")
		return err
	})
}

// deploy applies a manifest of deploy/ with this run's image, and with what else is to be changed in it, until the
// feature is over.
func (s *scene) deploy(name string, changes map[string]string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.root, "deploy", name))
	s.must(err)
	manifest := string(text)
	for old, with := range changes {
		if !strings.Contains(manifest, old) {
			s.t.Fatalf("deploy/%s has no %q", name, old)
		}
		manifest = strings.ReplaceAll(manifest, old, with)
	}
	manifest = strings.ReplaceAll(manifest, "image: "+repository+"legacyprovisioner:",
		"image: "+s.image("legacyprovisioner")+" #")
	s.removeWhenDone(manifest)
	s.apply(manifest)
}

// deleteWhenDone deletes an object without a namespace once the feature is over.
func (s *scene) deleteWhenDone(kind, name string) {
	s.t.Helper()
	s.whenDone(func(ctx context.Context) error {
		_, err := s.cluster.Kubectl(ctx, nil, "delete", kind, name, "--ignore-not-found")
		return err
	})
}
