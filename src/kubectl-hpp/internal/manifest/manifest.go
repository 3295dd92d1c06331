// Package manifest creates PersistentVolumes and claims of volumes that are there already, with the rights of the user.
package manifest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// Create makes a PersistentVolume or a claim, and says so. One that is there is good if it is the same volume's.
func Create(ctx context.Context, api kubernetes.Interface, o map[string]any) (string, error) {
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
