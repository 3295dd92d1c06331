package csi

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// Probe asks a CSI driver whether it is ready.
func Probe(ctx context.Context, conn grpc.ClientConnInterface) error {
	response, err := pb.NewIdentityClient(conn).Probe(ctx, &pb.ProbeRequest{})
	if err != nil {
		return fmt.Errorf("probe the driver on its socket: %w", err)
	}
	if response.GetReady() != nil && !response.GetReady().GetValue() {
		return errors.New("the driver says that it is not ready")
	}
	return nil
}
