package inventory

import "context"

// SearchNode looks for orphans on one node.
func (i *Inventory) SearchNode(ctx context.Context, node string) { i.searchNode(ctx, node) }
