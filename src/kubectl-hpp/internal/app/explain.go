package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/diagnosis"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/explain"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/remote"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/say"
)

// diagnosis are the commands that say what is wrong, and change nothing.
func (p *plugin) diagnosis() []*cobra.Command {
	return []*cobra.Command{p.newExplain(), p.newDoctor(), p.newReport()}
}

func (p *plugin) newExplain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain {pvc|pod|pv|node} NAME",
		Short: "Say why a claim, pod, PersistentVolume or node is as it is, and what to type next",
		Long: "Say why a claim or pod is pending, a volume full or stuck, or a node without volumes, and what to\n" +
			"type next. It reads the objects, their events, and what the controller knows of the nodes' pools,\n" +
			"and changes nothing. What you may not read is left out.\n\n" +
			"Of a pod, each of its claims is explained that has a volume of the driver. PV may also be the id of\n" +
			"a volume that no PersistentVolume names.\n\n" +
			"The exit code is 0 where nothing is wrong, 3 where something is, and was said.",
		Example: "  kubectl hpp explain pvc pg-3 -n shop\n  kubectl hpp explain pod/pg-3 -n shop\n" +
			"  kubectl hpp explain pv pvc-5e8f5a3c-1f6e-4d6b-9d0a-6b9f1f1c2d3e\n  kubectl hpp explain node worker-4",
		Args: func(_ *cobra.Command, args []string) error {
			_, _, err := parseObject(args)
			return err
		},
		ValidArgs: []string{"pvc", "pod", "pv", "node"},
		RunE: func(command *cobra.Command, args []string) error {
			kind, name, err := parseObject(args)
			if err != nil {
				return err
			}
			answer, err := p.explain(command.Context(), kind, name)
			if err != nil {
				return err
			}
			if err = answer.Write(command.OutOrStdout()); err == nil && answer.Trouble() {
				err = errTrouble
			}
			return err
		},
	}
}

// parseObject reads TYPE NAME or TYPE/NAME, with kubectl's names of types.
func parseObject(args []string) (kind, name string, err error) {
	switch len(args) {
	case 1:
		kind, name, _ = strings.Cut(args[0], "/")
	case 2:
		kind, name = args[0], args[1]
	}
	for long, names := range map[string][]string{
		"pvc":  {"pvc", "pvcs", "persistentvolumeclaim", "persistentvolumeclaims", "claim"},
		"pod":  {"pod", "pods", "po"},
		"pv":   {"pv", "pvs", "persistentvolume", "persistentvolumes"},
		"node": {"node", "nodes", "no"},
	} {
		if slices.Contains(names, strings.ToLower(kind)) && name != "" {
			return long, name, nil
		}
	}
	return "", "", fmt.Errorf("%w: explain what? want pvc, pod, pv or node, and one name, such as: explain pvc/data",
		errUsage)
}

// explain reads what there is about an object, and explains it.
func (p *plugin) explain(ctx context.Context, kind, name string) (answer say.Answer, err error) {
	namespace, err := p.namespace()
	if err != nil {
		return answer, err
	}
	if kind == "pv" { // the claim may be anywhere
		namespace = ""
	}
	api, err := p.api()
	if err != nil {
		return answer, err
	}
	f, err := p.read(ctx, namespace, askStatus, askVolumes)
	if err == nil {
		err = f.ReadPods(ctx, api)
	}
	if err != nil {
		return answer, err
	}
	switch kind {
	case "pvc":
		return p.explainClaim(ctx, f, corev1.ObjectReference{Namespace: namespace, Name: name})
	case "pod":
		return explainPod(ctx, api, f, corev1.ObjectReference{Namespace: namespace, Name: name})
	case "pv":
		return explainVolume(ctx, api, f, name)
	}
	if _, known := f.Node(name); !known && len(f.Nodes) > 0 && f.Object(name) == nil {
		return answer, notFound("node", name, namesOf(f.Nodes, func(n corev1.Node) string { return n.Name }))
	}
	return diagnosis.Node(f, name), nil
}

func namesOf[T any](all []T, name func(T) string) (names []string) {
	for _, one := range all {
		names = append(names, name(one))
	}
	return names
}

// notFound is the error about something that is not there, with what is.
func notFound(what, name string, there []string) error {
	if len(there) == 0 {
		return fmt.Errorf("there is no %s %s, or you may not see it", what, name)
	}
	return fmt.Errorf("there is no %s %s; there are: %s", what, name, abridge.Names(there))
}

func (p *plugin) explainClaim(
	ctx context.Context, f facts.Facts, named corev1.ObjectReference,
) (answer say.Answer, err error) {
	i := slices.IndexFunc(f.Claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == named.Name })
	if i < 0 {
		return p.explainClaimless(ctx, f, named)
	}
	api, err := p.api()
	if err != nil {
		return answer, err
	}
	c := &f.Claims[i]
	if err = claimEvents(ctx, api, &f, c); err != nil {
		return answer, err
	}
	return explain.Claim(f, c), nil
}

// explainClaimless looks for what is left of a claim that is not there.
func (p *plugin) explainClaimless(
	ctx context.Context, f facts.Facts, named corev1.ObjectReference,
) (answer say.Answer, err error) {
	if f.Answered() {
		var controller *remote.Controller
		if controller, err = p.controller(ctx); err == nil {
			err = controller.Ask(ctx, &f.Deleted, strings.Fields(askTrash)...)
		}
	}
	if answer, found := diagnosis.Claimless(f, named.Namespace+"/"+named.Name); found {
		return answer, nil
	}
	there := namesOf(f.Claims, func(c corev1.PersistentVolumeClaim) string { return c.Name })
	return answer, errors.Join(notFound("claim in namespace "+named.Namespace+" named", named.Name, there), err)
}

// claimEvents adds what was said about a claim and its PersistentVolume.
func claimEvents(
	ctx context.Context, api kubernetes.Interface, f *facts.Facts, c *corev1.PersistentVolumeClaim,
) error {
	about := corev1.ObjectReference{
		Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID,
	}
	if err := addEvents(ctx, api, f, about); err != nil || c.Spec.VolumeName == "" {
		return err
	}
	return addEvents(ctx, api, f, corev1.ObjectReference{Kind: "PersistentVolume", Name: c.Spec.VolumeName})
}

func explainPod(
	ctx context.Context, api kubernetes.Interface, f facts.Facts, named corev1.ObjectReference,
) (answer say.Answer, err error) {
	pod, err := api.CoreV1().Pods(named.Namespace).Get(ctx, named.Name, metav1.GetOptions{})
	if err != nil {
		return answer, fmt.Errorf("get pod %s in namespace %s: %w", named.Name, named.Namespace, err)
	}
	named.Kind, named.UID = "Pod", pod.UID
	if err = addEvents(ctx, api, &f, named); err != nil {
		return answer, err
	}
	for i := range f.Claims {
		if slices.Contains(facts.ClaimsOf(*pod), f.Claims[i].Name) {
			if err = claimEvents(ctx, api, &f, &f.Claims[i]); err != nil {
				return answer, err
			}
		}
	}
	return explain.Pod(f, pod), nil
}

func explainVolume(
	ctx context.Context, api kubernetes.Interface, f facts.Facts, name string,
) (answer say.Answer, err error) {
	for i := range f.Volumes {
		pv := &f.Volumes[i]
		if pv.Name != name && pv.Spec.CSI.VolumeHandle != name {
			continue
		}
		about := corev1.ObjectReference{Kind: "PersistentVolume", Name: pv.Name, UID: pv.UID}
		if err = addEvents(ctx, api, &f, about); err != nil {
			return answer, err
		}
		if of := pv.Spec.ClaimRef; of != nil {
			about = corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", Namespace: of.Namespace, Name: of.Name, UID: of.UID,
			}
			err = addEvents(ctx, api, &f, about)
		}
		return explain.Volume(f, pv), err
	}
	for _, v := range f.Listed {
		if v.ID == name {
			return diagnosis.Orphan(v), nil
		}
	}
	return answer, notFound("PersistentVolume of driver "+f.Controller.Driver, name,
		namesOf(f.Volumes, func(v corev1.PersistentVolume) string { return v.Name }))
}

// addEvents adds what was said about an object.
func addEvents(ctx context.Context, api kubernetes.Interface, f *facts.Facts, about corev1.ObjectReference) error {
	events, missing, err := cluster.Events(ctx, api, about)
	f.Events = append(f.Events, events...)
	if missing != "" {
		f.Missing = append(f.Missing, missing)
	}
	return err
}
