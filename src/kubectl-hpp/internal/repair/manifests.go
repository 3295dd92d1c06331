package repair

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
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
		if made, err = create(ctx, api, answer.Manifests[i]); err == nil {
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

// create makes an object, and says so. One that is there already is good if it is the same volume's.
func create(ctx context.Context, api kubernetes.Interface, o object) (string, error) {
	text, err := yaml.Marshal(o)
	if err != nil {
		return "", err
	}
	if o["kind"] == "PersistentVolume" {
		pv := &corev1.PersistentVolume{}
		if err := yaml.UnmarshalStrict(text, pv); err != nil {
			return "", fmt.Errorf("read the PersistentVolume: %w", err)
		}
		return createVolume(ctx, api, pv)
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := yaml.UnmarshalStrict(text, claim); err != nil {
		return "", fmt.Errorf("read the claim: %w", err)
	}
	return createClaim(ctx, api, claim)
}

func createVolume(ctx context.Context, api kubernetes.Interface, pv *corev1.PersistentVolume) (string, error) {
	all := api.CoreV1().PersistentVolumes()
	_, err := all.Create(ctx, pv, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return "persistentvolume/" + pv.Name + " created", explained(err, "PersistentVolume "+pv.Name)
	}
	is, err := all.Get(ctx, pv.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return "", explained(err, "PersistentVolume "+pv.Name)
	case is.Spec.CSI == nil || is.Spec.CSI.VolumeHandle != pv.Spec.CSI.VolumeHandle ||
		is.Spec.CSI.Driver != pv.Spec.CSI.Driver:
		return "", fmt.Errorf("PersistentVolume %s is there already, and is another volume's; rename this one in the "+
			"manifest", pv.Name)
	}
	return "persistentvolume/" + pv.Name + " is there already", nil
}

func createClaim(ctx context.Context, api kubernetes.Interface, claim *corev1.PersistentVolumeClaim) (string, error) {
	all, name := api.CoreV1().PersistentVolumeClaims(claim.Namespace), claim.Namespace+"/"+claim.Name
	_, err := all.Create(ctx, claim, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return "persistentvolumeclaim/" + claim.Name + " created in " + claim.Namespace, explained(err, "claim "+name)
	}
	is, err := all.Get(ctx, claim.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return "", explained(err, "claim "+name)
	case is.Spec.VolumeName == "":
		return "persistentvolumeclaim/" + claim.Name + " is there already, and waits: the PersistentVolume is for it",
			nil
	case is.Spec.VolumeName == claim.Spec.VolumeName:
		return "persistentvolumeclaim/" + claim.Name + " is there already", nil
	}
	return "", fmt.Errorf("claim %s is there already, with volume %s; delete it, or rename this one and the "+
		"PersistentVolume's claimRef", name, is.Spec.VolumeName)
}

// explained says what could not be created, and what to do.
func explained(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not create %s; somebody who may can do it: %w", what, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("create %s: its namespace is gone; create that first: %w", what, err)
	}
	return fmt.Errorf("create %s: %w", what, err)
}
