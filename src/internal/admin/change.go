package admin

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
)

func newForget(stateDir *string) *cobra.Command {
	var q wire.ForgetPoolRequest
	return onNode(&cobra.Command{
		Use: "forget NAME", Short: "Forget the identity of an absent pool", Args: cobra.ExactArgs(1),
		Long: "Forget the identity of a pool that is absent, because its disk was replaced on purpose or because\n" +
			"it was taken out of the configuration for good. A configured pool is then adopted anew with what is\n" +
			"at its path; volumes that were on the old disk are gone for this node. That is noted of a pool that\n" +
			"this node never had, too: PersistentVolumes that name it can then be deleted.",
		RunE: func(command *cobra.Command, args []string) error {
			q.Pool = args[0]
			return tell(command, func(ctx context.Context) (string, error) {
				answer, err := call(ctx, *stateDir, &q, wire.AdminClient.ForgetPool)
				said := "pool %s is forgotten on %s"
				if !answer.GetKnown() {
					said = "pool %s was never used on %s; it is noted that its volumes are gone"
				}
				return fmt.Sprintf(said, q.GetPool(), cmp.Or(q.GetNode(), "this node")), err
			})
		},
	}, &q.Node)
}

func newTake(stateDir *string) *cobra.Command {
	var q wire.TakePoolRequest
	command := onNode(&cobra.Command{
		Use: "take NAME --from OWNER", Short: "Take a shared pool from a cluster that is gone",
		Args: cobra.ExactArgs(1),
		Long: "Make a shared pool this cluster's that belongs to another one, because that one is gone or was built\n" +
			"anew. OWNER is the UID of the other cluster's namespace kube-system, as the pool's message says it.\n" +
			"Where the other cluster is still there, its nodes find the pool absent from then on, and its pods\n" +
			"lose their volumes.",
		RunE: func(command *cobra.Command, args []string) error {
			q.Pool = args[0]
			return tell(command, func(ctx context.Context) (string, error) {
				_, err := call(ctx, *stateDir, &q, wire.AdminClient.TakePool)
				return fmt.Sprintf("pool %s is this cluster's now", q.GetPool()), err
			})
		},
	}, &q.Node)
	command.Flags().StringVar(&q.From, "from", "",
		"UID of the namespace kube-system of the cluster that it belongs to")
	_ = command.MarkFlagRequired("from")
	return command
}

func newAdopt(stateDir *string) *cobra.Command {
	var size, storageClass string
	var q wire.AdoptRequest
	command := onNode(&cobra.Command{
		Use: "adopt ID", Short: "Print a PersistentVolume and a claim for a volume that none names",
		Args: cobra.ExactArgs(1),
		Long: "Print a PersistentVolume for a volume that none names, because its disk was moved to the node, or\n" +
			"the node renamed, and the claim that it was made for. A directory without a record gets one of the\n" +
			"size given. Nothing else is changed.",
		RunE: func(command *cobra.Command, args []string) (err error) {
			q.Id = args[0]
			if size != "" {
				if q.Bytes, err = poolspec.ParseBytes(size); err != nil {
					return fmt.Errorf("--size: %w", err)
				}
				if q.GetBytes() <= 0 {
					return fmt.Errorf("--size: %q: want more than 0 bytes, such as 10Gi", size)
				}
			}
			return show(command, func(ctx context.Context) (manifests, error) {
				answer, err := call(ctx, *stateDir, &q, wire.AdminClient.Adopt)
				return manifestsOf(answer, storageClass), err
			}, writeManifests)
		},
	}, &q.Node)
	command.Flags().StringVar(&size, "size", "", "size of a volume that has no record, such as 10Gi")
	command.Flags().StringVar(&storageClass, "storage-class", "", "the storageClassName of both")
	return command
}

func newDiscard(stateDir *string) *cobra.Command {
	var q wire.DiscardRequest
	command := onNode(&cobra.Command{
		Use: "discard ID", Args: cobra.ExactArgs(1),
		Short: "Move a volume into the trash that no PersistentVolume names",
		RunE: func(command *cobra.Command, args []string) error {
			q.Id = args[0]
			return tell(command, func(ctx context.Context) (string, error) {
				_, err := call(ctx, *stateDir, &q, wire.AdminClient.Discard)
				return fmt.Sprintf("volume %s is in the trash", q.GetId()), err
			})
		},
	}, &q.Node)
	command.Flags().StringVar(&q.PvOn, "pv-on", "",
		"the other node of the only PersistentVolume that may name the volume")
	return command
}

func newUndelete(stateDir *string) *cobra.Command {
	var storageClass string
	var q wire.UndeleteRequest
	command := onNode(&cobra.Command{
		Use: "undelete ENTRY", Short: "Bring a deleted volume back from the trash", Args: cobra.ExactArgs(1),
		Long: "Bring a deleted volume back from the trash, and print a PersistentVolume and a claim for it.\n" +
			"ENTRY is what `volume list --deleted` shows.",
		RunE: func(command *cobra.Command, args []string) error {
			q.Entry = args[0]
			return show(command, func(ctx context.Context) (manifests, error) {
				answer, err := call(ctx, *stateDir, &q, wire.AdminClient.Undelete)
				return manifestsOf(answer, storageClass), err
			}, writeManifests)
		},
	}, &q.Node)
	command.Flags().StringVar(&storageClass, "storage-class", "", "the storageClassName of both")
	return command
}
