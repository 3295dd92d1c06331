package poolclaims

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

// shown is how many claims a message names.
const shown = 10

// DescribeLeft says which claims stay when there are no pools any more, "" if there are none.
func (k *Keeper) DescribeLeft(ctx context.Context) (string, error) {
	known, err := k.listClaims(ctx)
	if err != nil || len(known) == 0 {
		return "", err
	}
	all := slices.Sorted(maps.Keys(known))
	list := strings.Join(all[:min(len(all), shown)], ", ")
	if more := len(all) - shown; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("the claims of pools stay in the namespace %s with all that is on them, and a resource with "+
		"the same pools uses them again: %s; to remove them and their data: kubectl delete pvc --namespace "+
		"%s --selector %s",
		k.namespace, list, k.namespace, names.PoolClaimLabel), nil
}
