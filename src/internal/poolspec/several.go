package poolspec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Several reports whether a StorageClass names several pools by its parameter storagePool: by a list, "fast,slow", or
// by a prefix, "nvme*".
func Several(named string) bool { return strings.ContainsAny(named, ",*") }

// PoolsOf are the names of the configured pools that a class means: several where it names several, else the one of
// DefaultPool, which need not be configured, and is "" where the class means none. Any of several may take a volume, so
// they have scope node, and promise alike.
func PoolsOf(configured []Pool, named string) (names []string, err error) {
	all := make([]string, len(configured))
	for i, p := range configured {
		all[i] = p.Name
	}
	if !Several(named) {
		return []string{DefaultPool(all, named)}, nil
	}
	for item := range strings.SplitSeq(named, ",") {
		matched, err := matching(all, item)
		if err != nil {
			return nil, fmt.Errorf("%.128q: %w", named, err)
		}
		for _, name := range matched {
			if slices.Contains(names, name) {
				return nil, fmt.Errorf("%.128q names pool %s twice: want each pool once", named, name)
			}
			names = append(names, name)
		}
	}
	chosen := slices.DeleteFunc(slices.Clone(configured), func(p Pool) bool { return !slices.Contains(names, p.Name) })
	if err := checkAlike(chosen); err != nil {
		return nil, fmt.Errorf("%.128q: %w", named, err)
	}
	return names, nil
}

// matching are the names that an item of a list means, which is a name, or a prefix and a *.
func matching(names []string, item string) (matched []string, err error) {
	all := cmp.Or(strings.Join(names, ", "), "none")
	prefix, many := strings.CutSuffix(item, "*")
	if many {
		other := func(name string) bool { return !strings.HasPrefix(name, prefix) }
		matched = slices.DeleteFunc(slices.Clone(names), other)
	} else if slices.Contains(names, item) {
		matched = []string{item}
	}
	switch {
	case prefix == "", many && !ValidName(prefix+"0"), !many && !ValidName(item): // a prefix may end with a -
		return nil, fmt.Errorf("%.64q is neither a pool's name nor the beginning of names with a * after it: want "+
			"such as nvme0,nvme1 or nvme*, with commas alone between them", item)
	case len(matched) == 0 && many:
		return nil, fmt.Errorf("no pool's name begins with %.64q; configured are: %s", prefix, all)
	case len(matched) == 0:
		return nil, fmt.Errorf("no pool is named %.64q; configured are: %s", item, all)
	}
	return matched, nil
}

// checkAlike refuses pools that cannot stand for one another.
func checkAlike(pools []Pool) error {
	first := pools[0]
	for _, p := range pools {
		switch {
		case p.Shared():
			return fmt.Errorf("pool %s has scope shared: want it as the only one, or pools with scope node", p.Name)
		case p.Quota != first.Quota:
			return fmt.Errorf("pool %s has quota %s and pool %s has %s: want one quota for all of them",
				first.Name, first.Quota, p.Name, p.Quota)
		case p.Overcommit != first.Overcommit:
			return fmt.Errorf("pool %s has overcommit %v and pool %s has %v: want one overcommit for all of them",
				first.Name, first.Overcommit, p.Name, p.Overcommit)
		}
	}
	return nil
}
