package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

const (
	// listed is how long a node's list is waited for: no longer than whoever asks waits for all of them.
	listed = 30 * time.Second
	// maxDeleted is what a node may list at most, and maxEntry what it may say of one volume, in bytes.
	maxDeleted, maxEntry = 10_000, 2 << 10
)

// entryName is the name of an entry of the trash, and in it the volume's id.
var entryName = regexp.MustCompile(`^(.+)\.[0-9]{1,19}$`)

// volumeOf is the id of the volume of an entry of the trash, "" where that is none.
func volumeOf(entry string) string {
	if parts := entryName.FindStringSubmatch(entry); parts != nil {
		return parts[1]
	}
	return ""
}

// Undelete implements wire.AdminServer. As in Adopt, a node decides nothing but size, pool and claim.
func (s *server) Undelete(ctx context.Context, q *wire.UndeleteRequest) (*wire.AdoptResponse, error) {
	answer, err := forward(ctx, s, q, wire.AdminClient.Undelete)
	if err != nil {
		return nil, err
	}
	return s.described(q.GetNode(), volumeOf(q.GetEntry()), answer.GetVolume())
}

// Deleted implements wire.AdminServer. A node that does not answer keeps those of the others from nobody.
func (s *server) Deleted(_ *wire.DeletedRequest, out grpc.ServerStreamingServer[wire.DeletedVolume]) error {
	nodes := s.Config.Nodes.Nodes()
	lists := make([][]nodeapi.DeletedVolume, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() {
			list, err := s.deletedOn(out.Context(), n.Name)
			if err != nil {
				list = append(list, nodeapi.DeletedVolume{Node: n.Name, State: status.Convert(err).Message()})
			}
			lists[i] = list
		})
	}
	all.Wait()
	for _, v := range slices.Concat(lists...) {
		if err := out.Send(wire.FromDeleted(v)); err != nil {
			return err
		}
	}
	return nil
}

// deletedOn asks a node for what is in its trash. What can be none is left out.
func (s *server) deletedOn(ctx context.Context, node string) (list []nodeapi.DeletedVolume, err error) {
	connection, err := s.Config.Nodes.Connection(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listed)
	defer cancel()
	stream, err := wire.NewAdminClient(connection).Deleted(ctx, &wire.DeletedRequest{},
		grpc.MaxCallRecvMsgSize(maxEntry))
	for count := 0; err == nil; count++ {
		var v *wire.DeletedVolume
		v, err = stream.Recv()
		if err == nil && sound(v.GetVolume()) && volumeOf(v.GetEntry()) == v.GetVolume().GetId() {
			v.Node, v.State = node, ""
			list = append(list, wire.ToDeleted(v))
		}
		if err == nil && count >= maxDeleted {
			err = fmt.Errorf("node %s: there are more than %d", node, maxDeleted)
		}
	}
	if errors.Is(err, io.EOF) {
		return list, nil
	}
	return list, explained(node, err)
}
