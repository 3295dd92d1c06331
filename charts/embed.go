// Package charts carries the Helm chart inside a Go binary, so that whoever
// renders it renders exactly the templates of the same commit.
package charts

import (
	"embed"
	"io/fs"
)

// The "all:" prefix matters: without it go:embed leaves out _helpers.tpl and
// .helmignore, whose names begin with "_" and ".".
//
//go:embed all:hostpath-provisioner
var files embed.FS

// HostpathProvisioner returns the chart's folder as a read-only file system
// whose root holds Chart.yaml. The error is fs.Sub's and can only mean that
// the folder was renamed without this file.
func HostpathProvisioner() (fs.FS, error) {
	return fs.Sub(files, "hostpath-provisioner")
}
