// Package uninstall is the sub-command check-uninstall: it keeps `helm uninstall` from taking the operator away while a
// HostPathProvisioner needs it.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/chosen"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/gates"
)

// Command is check-uninstall. It fails, after having printed what is left and what to do, while there is a
// HostPathProvisioner.
func Command() *cobra.Command {
	var driver, namespace, kubeconfig string
	command := &cobra.Command{
		Use:           "check-uninstall",
		Short:         "Fail while a HostPathProvisioner needs the operator",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			reader, err := connect(kubeconfig)
			if err != nil {
				return err
			}
			return check(command.Context(), reader, counted{driver, namespace}, command.OutOrStdout())
		},
	}
	command.Flags().StringVar(&driver, "driver-name", names.Driver, "name of the CSI driver whose volumes count")
	command.Flags().StringVar(&namespace, "namespace", "",
		"the operator's namespace: volumes behind the claims of pools there do not count")
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "file with the cluster's address; empty: in the cluster")
	return command
}

func connect(kubeconfig string) (client.Reader, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1beta1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// counted is whose volumes count: those of a driver, less those behind the claims of pools in a namespace.
type counted struct{ driver, namespace string }

// check prints what is left to out. Without the CRD nothing can be left.
func check(ctx context.Context, reader client.Reader, of counted, out io.Writer) error {
	var resources v1beta1.HostPathProvisionerList
	err := reader.List(ctx, &resources)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || err == nil && len(resources.Items) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the HostPathProvisioners: %w", err)
	}
	var list corev1.PersistentVolumeList
	unknown := reader.List(ctx, &list)
	resource := resources.Items[0]
	for _, one := range resources.Items {
		if one.Name == chosen.Name(resources.Items) {
			resource = one
		}
	}
	volumes := gates.OfUsers(gates.Volumes(list.Items, of.driver, of.namespace))
	if err := writeReport(out, resource, volumes, unknown); err != nil {
		return err
	}
	return fmt.Errorf("the HostPathProvisioner %s is left: delete it before the operator", resource.Name)
}
