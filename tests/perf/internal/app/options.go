package app

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/perf/internal/burst"
)

// options are the command line.
type options struct {
	parts []string // as in allParts
	out   string
	busy  float64

	dir     string
	disks   []string
	volumes []int
	// subvolumes are volumes on btrfs.
	subvolumes []int
	rounds     int
	files      int

	systems []string
	cluster string
	keep    bool
	claims  int
	bursts  int
	profile bool
	starts  int
}

// allParts are what can be measured, in this order.
func allParts() []string { return []string{"driver", "copies", "burst", "pods"} }

const usage = `usage: perf [flags] [driver|copies|burst|pods|all]

driver  the built driver alone over its socket, on a directory and on filesystems in files (root)
copies  its snapshots and clones: on btrfs with quota of much and of little, elsewhere beside cp
burst   claims with a pod each on a kind cluster, beside rancher local-path and a driver that only mounts
pods    how soon a pod runs, beside local-path and emptyDir, a volume grows, and a full node's pods are back
all     each of these (default)

The report goes to a new folder below -out: report.md, and bench.txt for benchstat, which compares two runs.

flags:
`

// parse reads the command line. Flags may stand before and after the command.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var disks, volumes, subvolumes, systems string
	set := flag.NewFlagSet("perf", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.Usage = func() {
		_, _ = io.WriteString(stderr, usage) // nobody left to tell
		set.PrintDefaults()
	}
	set.StringVar(&o.out, "out", "", "`folder` for reports (default artifacts/perf in the repository)")
	set.Float64Var(&o.busy, "busy", 0.3,
		"`cores` that something else may use when a measurement begins: it waits for two minutes, and says "+
			"so in the report")
	set.StringVar(&o.dir, "dir", "/var/tmp", "`directory` on the disk to measure; not a tmpfs")
	set.StringVar(&disks, "disks", "host,ext4,xfs,btrfs,btrfs-plain",
		"host, and filesystems to make in files; btrfs has simple quota on")
	set.StringVar(&volumes, "volumes", "100,100000", "numbers of volumes in the pools, at least two")
	set.StringVar(&subvolumes, "subvolumes", "100,10000",
		"the same on btrfs, where each pool has a filesystem of its own")
	set.IntVar(&o.rounds, "rounds", 10, "how often everything takes turns; benchstat wants 6 or more")
	set.IntVar(&o.files, "files", 10_000,
		"files in a volume whose deletion or copying is timed; of those that are deleted, a million together")
	set.StringVar(&systems, "systems", "local-path,ceiling",
		"what the burst measures beside ours; ceiling is a driver that only mounts, with a "+
			"csi-provisioner on every node")
	set.StringVar(&o.cluster, "cluster", "", "kind cluster to use as it is; without, hpp-perf is made and removed")
	set.BoolVar(&o.keep, "keep", false, "do not remove the cluster hpp-perf afterwards")
	set.IntVar(&o.claims, "claims", 60, "claims in a burst")
	set.IntVar(&o.bursts, "bursts", 4, "how often the systems take turns at the burst")
	set.BoolVar(&o.profile, "profile", false, "find out where a burst's time goes: raise the request rates of the "+
		"controller manager and the scheduler, and keep CPU profiles of the API server and csi-provisioner")
	set.IntVar(&o.starts, "starts", 100, "pods to start with each kind of volume, and times that a volume grows")
	var words []string
	for rest := args; ; {
		if err := set.Parse(rest); err != nil {
			return o, err
		}
		if set.NArg() == 0 {
			break
		}
		words, rest = append(words, set.Arg(0)), set.Args()[1:]
	}
	err := errors.Join(o.setParts(words), o.setDisks(disks), o.setVolumes(volumes, subvolumes), o.setSystems(systems),
		o.check())
	return o, err
}

func (o *options) setParts(words []string) error {
	switch {
	case len(words) == 0 || len(words) == 1 && words[0] == "all":
		o.parts = allParts()
	case len(words) == 1 && slices.Contains(allParts(), words[0]):
		o.parts = words
	default:
		return fmt.Errorf("%s: want one of %s, or all", strings.Join(words, " "), strings.Join(allParts(), ", "))
	}
	return nil
}

func (o *options) setDisks(list string) error {
	o.disks = strings.Split(list, ",")
	for _, d := range o.disks {
		if !slices.Contains([]string{"host", "ext4", "xfs", "btrfs", "btrfs-plain"}, d) {
			return fmt.Errorf("-disks: %q: want host, ext4, xfs, btrfs or btrfs-plain", d)
		}
	}
	return nil
}

func (o *options) setVolumes(volumes, subvolumes string) error {
	var errs [2]error
	o.volumes, errs[0] = numbers("-volumes", volumes)
	o.subvolumes, errs[1] = numbers("-subvolumes", subvolumes)
	return errors.Join(errs[:]...)
}

// numbers reads the sizes of pools that a flag gives.
func numbers(flag, list string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s: %q: want whole numbers from 1, separated by commas", flag, part)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) < 2 {
		return nil, fmt.Errorf("%s: want at least two different numbers, to compare", flag)
	}
	return all, nil
}

func (o *options) setSystems(list string) error {
	for part := range strings.SplitSeq(list, ",") {
		if part != "" && part != burst.LocalPath && part != burst.Ceiling {
			return fmt.Errorf("-systems: %q: want %s or %s", part, burst.LocalPath, burst.Ceiling)
		}
		o.systems = append(o.systems, part)
	}
	return nil
}

func (o *options) check() error {
	switch {
	case o.rounds < 1:
		return fmt.Errorf("-rounds: %d: want 1 or more", o.rounds)
	case o.claims < 1:
		return fmt.Errorf("-claims: %d: want 1 or more", o.claims)
	case o.bursts < 1:
		return fmt.Errorf("-bursts: %d: want 1 or more", o.bursts)
	case o.starts < 1:
		return fmt.Errorf("-starts: %d: want 1 or more", o.starts)
	case o.files < 1:
		return fmt.Errorf("-files: %d: want 1 or more", o.files)
	case o.busy <= 0:
		return fmt.Errorf("-busy: %v: want more than 0 cores", o.busy)
	case !filepath.IsAbs(o.dir):
		return fmt.Errorf("-dir: %q: want an absolute path", o.dir)
	}
	return nil
}
