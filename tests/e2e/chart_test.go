package e2e

import (
	"maps"
	"time"
)

// Pools of the suite. A feature that takes a pool away, or fills it, has one
// of its own; so features do not meet.
const (
	poolLocal    = "local"
	poolSecond   = "second"
	poolBurst    = "burst"
	poolInline   = "inline"
	poolSized    = "sized"
	poolMetered  = "metered"
	poolReplaced = "replaced"
	poolMounted  = "mounted"
	poolCovered  = "covered"
	poolLinked   = "linked"
	poolSelected = "selected"
	poolEnforced = "enforced"
	poolGrowing  = "growing"
	poolCopied   = "copied"
	poolSwapped  = "swapped"
	poolSingle   = "single"
	poolOfOne    = "of-one"
	poolDiskA    = "disk-a" // of classDisks, as the next
	poolDiskB    = "disk-b"
	poolAway     = "away"   // of TestNodesWorkWithoutAController, and first used there
	poolShared   = "shared" // of TestSharedPool's release
	poolTaken    = "taken"  // of TestSharedPoolTakenAndReplaced's
)

// chartFolder is the chart in the repository.
const chartFolder = "charts/hostpath-provisioner"

// Paths on the nodes.
const (
	base       = "/var/lib/hpp-e2e"
	linkTarget = "/var/lib/hpp-e2e-link-target"
	disks      = "/var/lib/hpp-e2e-disks"
)

// Periods of this release: shorter than the chart's, for features wait for most of them.
const (
	nodeGrace     = 15 * time.Second
	nodeGoneAfter = 30 * time.Second
	capacityPoll  = 5 * time.Second
)

// selectedLabel is the node label that the pool `selected` wants.
const selectedLabel = "e2e.hostpath-provisioner/selected"

// ofOneLabel is the node label that the pool `of-one` wants.
const ofOneLabel = "e2e.hostpath-provisioner/of-one"

// pool is an entry of the chart's storagePools.
type pool struct {
	Name         string            `json:"name"`
	Path         string            `json:"path"`
	Scope        string            `json:"scope,omitempty"`
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	RequireMount bool              `json:"requireMount,omitempty"`
	Quota        string            `json:"quota,omitempty"`
	Inline       bool              `json:"inline,omitempty"`
	SharedAccess bool              `json:"sharedAccess,omitempty"`
	MaxVolumes   int               `json:"maxVolumes,omitempty"`
}

// class is an entry of the chart's storageClasses.
type class struct {
	Name              string            `json:"name"`
	StoragePool       string            `json:"storagePool,omitempty"`
	ReclaimPolicy     string            `json:"reclaimPolicy,omitempty"`
	VolumeBindingMode string            `json:"volumeBindingMode,omitempty"`
	MountOptions      []string          `json:"mountOptions,omitempty"`
	Parameters        map[string]string `json:"parameters,omitempty"`
}

// Classes beside the one that each pool has (classOf).
const (
	classImmediate = "e2e-immediate"
	classRetain    = "e2e-retain"
	classKept      = "e2e-kept" // its deleted volumes stay in the trash
	classOptions   = "e2e-mount-options"
	classDisks     = "e2e-disks" // in several pools
)

func classOf(pool string) string { return "e2e-" + pool }

func pathOf(pool string) string {
	if pool == poolLocal {
		return "/var/lib/hostpath-provisioner" // the chart's default
	}
	return base + "/" + pool
}

// volumePath is where a volume lies on its node.
func volumePath(pool, volume string) string { return pathOf(pool) + "/csi/" + volume }

// basePools are the pools that the release has, features apart that change it.
func basePools() []pool {
	pools := []pool{
		{Name: poolLocal},
		{Name: poolSecond},
		{Name: poolBurst},
		{Name: poolReplaced},
		{Name: poolCovered},
		{Name: poolLinked},
		{Name: poolInline, Inline: true},
		{Name: poolAway, Inline: true},
		{Name: poolSingle, MaxVolumes: 1},
		{Name: poolDiskA, MaxVolumes: 1},
		{Name: poolDiskB, MaxVolumes: 1},
		{Name: poolSized, RequireMount: true},
		{Name: poolMetered, RequireMount: true},
		{Name: poolMounted, RequireMount: true},
		{Name: poolEnforced, RequireMount: true, Quota: "required"},
		{Name: poolGrowing, RequireMount: true, Quota: "required"},
		{Name: poolCopied, RequireMount: true, Quota: "required"},
		{Name: poolSwapped, RequireMount: true},
		{Name: poolSelected, NodeSelector: map[string]string{selectedLabel: "yes"}},
		{Name: poolOfOne, NodeSelector: map[string]string{ofOneLabel: "yes"}, SharedAccess: true},
	}
	for i := range pools {
		pools[i].Path = pathOf(pools[i].Name)
	}
	return pools
}

// classesFor gives each pool a class, and adds those with something special.
func classesFor(pools []pool) []class {
	classes := []class{
		{Name: "hostpath-local", StoragePool: poolLocal}, // the chart's default
		{Name: classImmediate, StoragePool: poolLocal, VolumeBindingMode: "Immediate"},
		{Name: classRetain, StoragePool: poolLocal, ReclaimPolicy: "Retain"},
		{Name: classDisks, StoragePool: "disk-*"},
		{Name: classKept, StoragePool: poolLocal, Parameters: map[string]string{"onDelete": "retain"}},
		{
			Name: classOptions, StoragePool: poolLocal, MountOptions: []string{"noexec", "nosuid", "noatime"},
			Parameters: map[string]string{
				"directoryMode": "0750", "uid": "1000", "gid": "3000",
			},
		},
	}
	for _, p := range pools {
		classes = append(classes, class{Name: classOf(p.Name), StoragePool: p.Name})
	}
	return classes
}

// values are what the chart is installed with.
func (s *suite) values(logLevel string, extra ...pool) map[string]any {
	pools := append(basePools(), extra...)
	image := func(name string) map[string]any {
		return map[string]any{"tag": imageTag, "digest": s.digests[name]}
	}
	return map[string]any{
		"storagePools":   pools,
		"storageClasses": classesFor(pools),
		"driver": map[string]any{
			"image": image("driver"), "logLevel": logLevel,
			// All nodes at once: upgrades are what costs this suite most of its time.
			"updateStrategy": map[string]any{
				"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": "100%"},
			},
		},
		"mounter": map[string]any{"image": image("mounter")},
		// `helm test` is tested with the chart; here it would render a pod for each class.
		"selftest": map[string]any{"enabled": false, "image": image("selftest")},
		"controller": map[string]any{
			"image":     image("controller"),
			"nodeGrace": nodeGrace.String(), "nodeGoneAfter": nodeGoneAfter.String(),
			"extraArgs": []string{"--orphan-age=1s"},
		},
		"sidecars": map[string]any{"provisioner": map[string]any{"capacityPollInterval": capacityPoll.String()}},
	}
}

// valuesWith are the usual values with others for the controller.
func (s *suite) valuesWith(controller map[string]any) map[string]any {
	values := s.values("info")
	has, _ := values["controller"].(map[string]any)
	maps.Copy(has, controller)
	return values
}
