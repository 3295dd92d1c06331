package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
)

// Undo gives the claims that were migrated, or begun with, their old volumes back.
func (m *Migration) Undo(ctx context.Context) error {
	journals, err := m.named(ctx)
	if err != nil {
		return err
	}
	if len(journals) == 0 {
		return errors.New("there is nothing to undo: no claim was begun with, or --finish has ended it")
	}
	if err := m.may(ctx); err != nil {
		return err
	}
	var problems []error
	for _, j := range journals {
		err := m.back(ctx, j)
		if err == nil {
			_, err = fmt.Fprintf(m.Out, "%s: it is as it was\n", j.Claim)
		} else {
			err = fmt.Errorf("claim %s: %w; run the command again to go on", j.Claim, err)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func (m *Migration) back(ctx context.Context, j *journal) error {
	if err := m.mayStop(ctx, j.Claim.Namespace); err != nil {
		return err
	}
	if err := m.own(ctx, j, undoing); err != nil {
		return err
	}
	pv, err := m.volume(ctx, j)
	if err != nil {
		return err
	}
	if pv == nil || m.ours(pv) {
		if pv != nil {
			err = m.removeVolume(ctx, pv, pv.UID)
		}
		if err == nil {
			err = m.moveOut(ctx, j)
		}
		if err == nil {
			err = m.createOld(ctx, j)
		}
	} else {
		err = m.setPolicy(ctx, j)
	}
	if err == nil {
		err = m.bind(ctx, j, "undone")
	}
	if err != nil {
		return err
	}
	return m.forget(ctx, j)
}

// moveOut ends the pods, and has the node move the directory back.
func (m *Migration) moveOut(ctx context.Context, j *journal) error {
	if err := m.evict(ctx, j); err != nil {
		return err
	}
	var last error
	for round := range patience {
		if err := m.still(ctx, j); err != nil {
			return err
		}
		var back nodeapi.ReturnedDirectory
		last = m.Ask(ctx, &back, "directory", "return", j.PV.Name, "--node", j.Node)
		what := fmt.Sprintf("until node %s has taken its files out of the count", j.Node)
		switch {
		case last == nil && back.Done:
			return m.isBack(ctx, j)
		case last != nil:
			what = fmt.Sprintf("as it does not go back yet: %v", last)
		}
		if err := m.waitFor(ctx, j, round, what); err != nil {
			return errors.Join(last, err)
		}
	}
	return cmp.Or(last, fmt.Errorf("node %s still takes its files out of the count", j.Node))
}

// isBack wants the directory where it was: it is there again, or was never taken.
func (m *Migration) isBack(ctx context.Context, j *journal) error {
	var found nodeapi.Directory
	err := m.Ask(ctx, &found, "directory", "look", j.Path, "--pool", j.Pool, "--node", j.Node)
	if err == nil && !found.Exists {
		err = fmt.Errorf("node %s has neither volume %s nor the directory %s; `kubectl hpp get trash` shows whether "+
			"the volume was deleted", j.Node, j.PV.Name, j.Path)
	}
	return err
}

// oldVolume is the old one as it was, without what the API server gives.
func (j *journal) oldVolume() *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: j.PV.Name, Labels: j.PV.Labels, Annotations: j.PV.Annotations},
		Spec:       *j.PV.Spec.DeepCopy(),
	}
	pv.Spec.ClaimRef = j.claimRef()
	return pv
}

// createOld makes the old PersistentVolume again. Where its claim is gone it is Retain: else the data would be deleted
// at once.
func (m *Migration) createOld(ctx context.Context, j *journal) error {
	pv := j.oldVolume()
	claim, err := m.API.CoreV1().PersistentVolumeClaims(j.Claim.Namespace).Get(ctx, j.Claim.Name, metav1.GetOptions{})
	gone := apierrors.IsNotFound(err) || err == nil && claim.UID != j.ClaimUID
	if err != nil && !gone {
		return fmt.Errorf("read the claim: %w", err)
	}
	if gone {
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
	if err := m.create(ctx, pv); err != nil {
		return err
	}
	if gone {
		err := m.forget(ctx, j)
		return errors.Join(err, fmt.Errorf("the claim is gone; its data is at %s on node %s, and PersistentVolume %s "+
			"is Retain", j.Path, j.Node, pv.Name))
	}
	return nil
}

func (m *Migration) setPolicy(ctx context.Context, j *journal) error {
	pv := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: j.PV.Name}}
	_, err := m.exchange().SetPolicy(ctx, &pv, j.PV.Spec.PersistentVolumeReclaimPolicy)
	return err
}

// Finish gives the new volumes the reclaim policies of the old ones and forgets these, so that nothing can be undone
// any more. Then the old classes that volumes of the pool have are replaced, or it is said how.
func (m *Migration) Finish(ctx context.Context, replace bool) error {
	journals, err := m.named(ctx)
	if err != nil {
		return err
	}
	classes, err := m.classes(ctx, replace)
	if err != nil {
		return err
	}
	for _, j := range journals {
		if err := m.finish(ctx, j); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(m.Out, "%d claims are finished with\n", len(journals)); err != nil {
		return err
	}
	var problems []error
	for _, class := range classes {
		problems = append(problems, m.class(ctx, class, replace))
	}
	return errors.Join(problems...)
}

// classes are the source's StorageClasses that volumes in the pool came from.
func (m *Migration) classes(ctx context.Context, replace bool) (old []storagev1.StorageClass, err error) {
	if replace {
		err = cluster.May(ctx, m.API,
			cluster.Right{Group: storagev1.GroupName, Resource: "storageclasses", Verbs: []string{"create", "delete"}})
	}
	if err != nil {
		return nil, err
	}
	pvs, err := m.API.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	of := map[string]bool{}
	for _, pv := range pvs.Items {
		if m.ours(&pv) && pv.Spec.CSI.VolumeAttributes[names.StoragePoolParameter] == m.Pool {
			of[pv.Spec.StorageClassName] = true
		}
	}
	if replace && len(of) == 0 {
		return nil, fmt.Errorf("no volume of %s is in pool %q, so that no class is replaced by one of it", m.Driver,
			m.Pool)
	}
	all, err := m.API.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list StorageClasses: %w", err)
	}
	return slices.DeleteFunc(all.Items, func(class storagev1.StorageClass) bool {
		return class.Provisioner != m.provisioner() || !of[class.Name]
	}), nil
}

// finish ends a journal. Its PersistentVolume may have been deleted by now.
func (m *Migration) finish(ctx context.Context, j *journal) error {
	if j.Phase != bound {
		return fmt.Errorf("claim %s is not migrated: go on with --apply, or back with --undo, before you finish",
			j.Claim)
	}
	if err := m.setPolicy(ctx, j); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return m.forget(ctx, j)
}

// class replaces an old class by one of ours with its name, which claims and charts name.
func (m *Migration) class(ctx context.Context, old storagev1.StorageClass, replace bool) error {
	by := manager(old.ObjectMeta)
	todo := fmt.Sprintf("StorageClass %s is left to replace: it is %s, which would bring it back; first remove it "+
		"there (k3s: --disable=local-storage), then name one like it in the chart's storageClasses, and helm upgrade",
		old.Name, by)
	switch {
	case by != "" && replace:
		return errors.New("the claims are finished, and " + todo)
	case by != "":
		_, err := fmt.Fprintln(m.Out, todo)
		return err
	case !replace:
		_, err := fmt.Fprintf(m.Out, "new claims of class %s still get volumes of %s: kubectl hpp migrate --from %s "+
			"--pool %s --finish --replace-class\n", old.Name, old.Provisioner, m.From, m.Pool)
		return err
	}
	waits, grows := storagev1.VolumeBindingWaitForFirstConsumer, true
	annotations := map[string]string{}
	if is, ok := old.Annotations["storageclass.kubernetes.io/is-default-class"]; ok {
		annotations["storageclass.kubernetes.io/is-default-class"] = is
	}
	ours := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: old.Name, Annotations: annotations},
		Provisioner: m.Driver, Parameters: map[string]string{names.StoragePoolParameter: m.Pool},
		ReclaimPolicy: old.ReclaimPolicy, VolumeBindingMode: &waits, AllowVolumeExpansion: &grows,
	}
	api, ctx := m.API.StorageV1().StorageClasses(), context.WithoutCancel(ctx) // not one without the other
	err := api.Delete(ctx, old.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &old.UID}})
	if err == nil || apierrors.IsNotFound(err) {
		if _, err = api.Create(ctx, ours, metav1.CreateOptions{}); err != nil {
			err = fmt.Errorf("it is deleted, and a new one was not made: name one like it in the chart's "+
				"storageClasses, and helm upgrade: %w", err)
		}
	}
	if err != nil {
		return fmt.Errorf("replace StorageClass %s: %w", old.Name, err)
	}
	_, err = fmt.Fprintf(m.Out, "class %s makes volumes in pool %s now\n", old.Name, m.Pool)
	return err
}

// manager says who would put an object back, "" for nobody known.
func manager(o metav1.ObjectMeta) string {
	if o.Labels["app.kubernetes.io/managed-by"] == "Helm" {
		return "of the Helm release " + o.Annotations["meta.helm.sh/release-name"]
	}
	if _, k3s := o.Annotations["objectset.rio.cattle.io/id"]; k3s {
		return "one that k3s or RKE2 deploys"
	}
	return ""
}
