package inventory

import "context"

// SearchNode looks for orphans on a node that is connected.
func (i *Inventory) SearchNode(ctx context.Context, node string) {
	i.searchNode(ctx, i.fleet.Get(node))
}
