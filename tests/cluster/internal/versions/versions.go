// Package versions pins what a cluster is made of where images can be pulled.
package versions

// Kind is the version of the kind library, as in go.mod. Its module also
// carries the files of a node image that is built from source.
const Kind = "v0.33.0"

// PublicNodeImage is the node image of that version of kind.
const PublicNodeImage = "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"

// CSIProvisioner is the sidecar version, which the chart names too.
const CSIProvisioner = "v6.3.0"

// LocalPath is the release of rancher's local-path provisioner that the budgets in
// docs/explanation/performance.md name.
const LocalPath = "v0.0.30"

// CSIResizer is the version of the sidecar that grows volumes, which the chart names too.
const CSIResizer = "v2.3.0"

// CSISnapshotter is the version of the sidecar that makes snapshots, which the chart names too, and of all that a
// cluster has from the same release: the snapshot-controller and the definitions of VolumeSnapshots.
const CSISnapshotter = "v8.7.0"
