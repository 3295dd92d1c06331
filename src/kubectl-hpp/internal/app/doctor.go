package app

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/doctor"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/report"
)

// snapshotAPI is where VolumeSnapshots are.
const snapshotAPI = "snapshot.storage.k8s.io/v1"

func (p *plugin) newDoctor() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check the installation, and say what to do about what is wrong", Args: cobra.NoArgs,
		Long: "Check the installation: versions, the CSIDriver, the controller, each node's kernel, driver, kubelet\n" +
			"and pools, how sizes are enforced, StorageClasses, snapshots and clocks. Each check is ok, warn or\n" +
			"FAIL, with what to do. It reads the API and what the controller knows, and changes nothing.\n\n" +
			"The exit code is 0 where nothing fails, 3 where something does.",
		Example: "  kubectl hpp doctor\n  kubectl hpp doctor --context production | grep -A3 FAIL",
		RunE: func(command *cobra.Command, _ []string) error {
			f, err := p.doctorFacts(command.Context())
			if err != nil {
				return err
			}
			checks := doctor.Examine(f)
			if err = doctor.Write(command.OutOrStdout(), checks); err == nil && doctor.Failed(checks) {
				err = errTrouble
			}
			return err
		},
	}
}

func (p *plugin) newReport() *cobra.Command {
	var file string
	command := &cobra.Command{
		Use: "report", Short: "Write one HTML file with nodes, pools, the fullest volumes and what is wrong",
		Args: cobra.NoArgs,
		Long: "Write one static HTML file: what is wrong (as doctor says it), nodes and pools, the fullest 20\n" +
			"volumes, and versions. It needs no server and loads nothing from elsewhere. It names nodes, claims\n" +
			"and paths, and has nothing of Secrets or tokens: read it before you attach it to a bug report. A\n" +
			"file of that name is replaced.",
		Example: "  kubectl hpp report\n  kubectl hpp report --file monday.html",
		RunE: func(command *cobra.Command, _ []string) error {
			f, err := p.doctorFacts(command.Context())
			if err != nil {
				return err
			}
			var page bytes.Buffer
			if err = report.Write(&page, report.Facts{Facts: f, Context: p.context()}); err != nil {
				return err
			}
			if file == "-" {
				_, err = page.WriteTo(command.OutOrStdout())
				return err
			}
			if err = os.WriteFile(file, page.Bytes(), 0o600); err != nil {
				return fmt.Errorf("--file: %w; name a file in a directory that is there", err)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s is written\n", file)
			return err
		},
	}
	command.Flags().StringVar(&file, "file", "report.html", "where to write it; - for standard output")
	return command
}

// context is that of the kubeconfig.
func (p *plugin) context() string {
	raw, err := p.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "unknown"
	}
	return cmp.Or(*p.flags.Context, raw.CurrentContext)
}

// doctorFacts reads what there is to know about an installation.
func (p *plugin) doctorFacts(ctx context.Context) (f doctor.Facts, err error) {
	api, err := p.api()
	if err != nil {
		return f, err
	}
	namespace, err := p.namespace()
	if err != nil {
		return f, err
	}
	f.Plugin = buildinfo.Version()
	if f.Facts, err = p.read(ctx, namespace, askStatus, askVolumes); err != nil {
		return f, err
	}
	if err = errors.Join(f.ReadPods(ctx, api), p.readResources(ctx, &f.Facts)); err != nil {
		return f, err
	}
	if is, err := api.Discovery().ServerVersion(); err == nil { // else it is said that it is not known
		f.Server = strings.TrimPrefix(is.GitVersion, "v")
	}
	f.CSIDriver, err = api.StorageV1().CSIDrivers().Get(ctx, f.Controller.Driver, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return f, fmt.Errorf("get CSIDriver %s: %w", f.Controller.Driver, err)
	case err != nil:
		f.CSIDriver = nil
	}
	return f, readSnapshots(ctx, api, &f)
}

// readSnapshots looks whether the cluster has snapshots: the API, and a pod of what serves it.
func readSnapshots(ctx context.Context, api kubernetes.Interface, f *doctor.Facts) error {
	there := false
	switch _, err := api.Discovery().ServerResourcesForGroupVersion(snapshotAPI); {
	case apierrors.IsNotFound(err):
		f.SnapshotAPI = &there
		return nil
	case err != nil:
		return nil //nolint:nilerr // it is said that it is not known
	}
	there = true
	f.SnapshotAPI = &there
	runs := false
	all := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return api.CoreV1().Pods("").List(ctx, o)
	})
	err := all.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		p, ok := object.(*corev1.Pod)
		runs = runs || ok && isSnapshotController(p)
		return nil
	})
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for the pods of snapshot-controller: %w", err)
	}
	f.SnapshotController = &runs
	return nil
}

// isSnapshotController reports whether a pod has a container of upstream's program, whatever the pod is called.
func isSnapshotController(p *corev1.Pod) bool {
	for _, c := range p.Spec.Containers {
		if strings.Contains(c.Name+" "+c.Image, "snapshot-controller") && p.Status.Phase == corev1.PodRunning {
			return true
		}
	}
	return false
}
