package repair

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/manifest"
)

// object is a part of an object of the Kubernetes API.
type object = map[string]any

// mayCreate refuses what the user may not create, and a claim that has another volume already.
func (c Config) mayCreate(ctx context.Context, claim, id string) error {
	api, err := c.API()
	if err != nil {
		return err
	}
	create := []string{"create"}
	rights := []cluster.Right{{Resource: "persistentvolumes", Verbs: create}}
	namespace, name, ok := strings.Cut(claim, "/")
	if ok {
		rights = append(rights, cluster.Right{Namespace: namespace, Resource: "persistentvolumeclaims", Verbs: create})
	}
	if err := cluster.May(ctx, api, rights...); err != nil {
		return fmt.Errorf("%w: %w; without --apply the manifests are printed, for somebody who may", ErrRefused, err)
	}
	if !ok {
		return nil
	}
	is, err := api.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("see whether claim %s is there: %w", claim, err)
	case is.Spec.VolumeName == "" || is.Spec.VolumeName == id:
		return nil
	}
	return fmt.Errorf("%w: claim %s is there, with volume %s; delete it first, or leave --apply out and change the "+
		"names in the manifests", ErrRefused, claim, is.Spec.VolumeName)
}

// manifests has a node give a volume's manifests, and creates them if that is wanted. Those are left that were not.
func (c Config) manifests(
	ctx context.Context, apply bool, node, id string, asked ...string,
) (left []object, err error) {
	var answer struct {
		Manifests []object `json:"manifests"`
	}
	if err := c.ask(ctx, &answer, asked...); err != nil || !apply {
		return answer.Manifests, err
	}
	api, err := c.API()
	for i := 0; err == nil && i < len(answer.Manifests); i++ {
		var made string
		if made, err = manifest.Create(ctx, api, answer.Manifests[i]); err == nil {
			err = c.print(made)
			continue
		}
		return answer.Manifests[i:], fmt.Errorf("%w: volume %s is on node %s, %s; create the rest, which is printed "+
			"here, with `kubectl create -f`: %w", ErrHalfMade, id, node,
			[]string{"without a PersistentVolume", "without its claim"}[min(i, 1)], err)
	}
	return nil, err
}

func (c Config) write(all []object) error {
	for i, one := range all {
		text, err := yaml.Marshal(one)
		if err == nil && i > 0 {
			_, err = fmt.Fprintln(c.Out, "---")
		}
		if err == nil {
			_, err = c.Out.Write(text)
		}
		if err != nil {
			return fmt.Errorf("write the manifests: %w", err)
		}
	}
	return nil
}
