package controller

import "context"

// SearchNode looks for orphans on one node.
func (s *Server) SearchNode(ctx context.Context, node string) { s.searchNode(ctx, node) }
