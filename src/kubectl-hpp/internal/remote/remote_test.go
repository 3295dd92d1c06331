package remote_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/exec"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/remote"
)

// answering is a controller whose pod says this.
func answering(stdout, stderr string, err error) *remote.Controller {
	return &remote.Controller{
		At: cluster.Controller{Namespace: "hpp", Pod: "hpp-controller-1", Version: "0.2.0"}, Version: "0.3.0",
		Exec: func(context.Context, []string) ([]byte, []byte, error) { return []byte(stdout), []byte(stderr), err },
	}
}

func TestAsk(t *testing.T) {
	var ran []string
	c := answering("", "", nil)
	c.Exec = func(_ context.Context, command []string) ([]byte, []byte, error) {
		ran = command
		return []byte(`{"driver":"hpp","version":"0.2.0","later":true}`), nil, nil
	}
	var got nodeapi.Status
	if err := c.Ask(t.Context(), &got, "volume", "list"); err != nil || got.Driver != "hpp" || got.Version != "0.2.0" {
		t.Errorf("got %+v, %v", got, err)
	}
	if want := []string{"/controller", "volume", "list", "--output", "json"}; !slices.Equal(ran, want) {
		t.Errorf("ran %q", ran)
	}
}

func TestWhatFails(t *testing.T) {
	failed := exec.CodeExitError{Err: errors.New("command terminated with exit code 1"), Code: 1}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/exec"}, "hpp-controller-1", nil)
	for name, test := range map[string]struct {
		stdout, stderr string
		err            error
		want           error
		says           []string
	}{
		"refused": {
			"", "a warning\ncontroller: the driver refused: node w1: volume not found\n", failed, remote.ErrRefused,
			[]string{"the controller refused: the driver refused: node w1: volume not found"},
		},
		"cut off":  {`{"driver":"hp`, "", nil, remote.ErrCutOff, []string{"status", "look before you ask again"}},
		"empty":    {"", "", nil, remote.ErrCutOff, []string{"may be done all the same"}},
		"no right": {"", "", forbidden, remote.ErrForbidden, []string{"pods/exec", "hpp/hpp-contr", "adminRoles"}},
		"older command": {
			"", `controller: unknown command "status" for "controller"`, failed, remote.ErrVersion,
			[]string{"it is 0.2.0, this is 0.3.0", "update the older"},
		},
		"older flag": {"", "controller: unknown flag: --output", failed, remote.ErrVersion, []string{"0.2.0"}},
		"broken":     {"", "", errors.New("connection refused"), nil, []string{"connection refused", "hpp-contr"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got nodeapi.Status
			err := answering(test.stdout, test.stderr, test.err).Ask(t.Context(), &got, "status")
			if err == nil || (test.want != nil && !errors.Is(err, test.want)) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			for _, words := range test.says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%v does not say %q", err, words)
				}
			}
		})
	}
}

// TestNoAnswerInTime: a controller that hangs is left.
func TestNoAnswerInTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := answering("", "", nil)
	c.Exec = func(ctx context.Context, _ []string) ([]byte, []byte, error) {
		cancel()
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	if err := c.Ask(ctx, nil, "status"); !errors.Is(err, remote.ErrCutOff) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestThePodIsGone: a command that did not run is run in the pod that took the place of the one that is gone.
func TestThePodIsGone(t *testing.T) {
	c := answering("", "", nil)
	c.Find = func(context.Context) (cluster.Controller, error) {
		return cluster.Controller{Namespace: "hpp", Pod: "hpp-controller-2"}, nil
	}
	asked := 0
	c.Exec = func(context.Context, []string) ([]byte, []byte, error) {
		if asked++; asked == 1 {
			return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "hpp-controller-1")
		}
		return []byte("{}"), nil, nil
	}
	if err := c.Ask(t.Context(), nil, "status"); err != nil || asked != 2 || c.At.Pod != "hpp-controller-2" {
		t.Errorf("asked %d times, now %s: %v", asked, c.At.Pod, err)
	}
}
