package main

import (
	"maps"
	"slices"
	"strings"
)

// goTools are built from Go modules. Where two tools want different versions of one library each has its own
// module, so that a tool is built with exactly what its authors tested.
func goTools() map[string]goTool {
	return map[string]goTool{
		"golangci-lint": {
			module: "golangci-lint",
			pkg:    "github.com/golangci/golangci-lint/v2/cmd/golangci-lint",
			// Without it the linter calls itself "(devel)" and will not say which version found what.
			versionVar: "main.version",
		},
		// Helm and ct answer `version` from these variables, and ct parses Helm's answer.
		"helm3": {
			module: "helm3", pkg: "helm.sh/helm/v3/cmd/helm", versionVar: "helm.sh/helm/v3/internal/version.version",
		},
		"helm4": {
			module: "helm4", pkg: "helm.sh/helm/v4/cmd/helm", versionVar: "helm.sh/helm/v4/internal/version.version",
		},
		"ct": {
			module:     "ct",
			pkg:        "github.com/helm/chart-testing/v3/ct",
			versionVar: "github.com/helm/chart-testing/v3/ct/cmd.Version",
		},
		"controller-gen": {module: "controller-gen", pkg: "sigs.k8s.io/controller-tools/cmd/controller-gen"},
		"helm-docs": {
			module: "helm-docs", pkg: "github.com/norwoodj/helm-docs/cmd/helm-docs", versionVar: "main.version",
		},
		"actionlint": {
			module: ".", pkg: "github.com/rhysd/actionlint/cmd/actionlint",
			versionVar: "github.com/rhysd/actionlint.version",
		},
		"benchstat": {module: ".", pkg: "golang.org/x/perf/cmd/benchstat"},
		"gotestsum": {module: ".", pkg: "gotest.tools/gotestsum"},
	}
}

// systemTools maps a program to the Debian package that carries it.
func systemTools() map[string]string {
	return map[string]string{
		"shellcheck": "shellcheck",
		"yamllint":   "yamllint",
		"git":        "git",
		"gcc":        "gcc",
		"promtool":   "prometheus",
		"fio":        "fio",
		"jq":         "jq",
		"rsync":      "rsync",
		"mkfs.ext4":  "e2fsprogs",
		"mkfs.xfs":   "xfsprogs",
		"mkfs.btrfs": "btrfs-progs",
		"modprobe":   "kmod",

		"qemu-system-x86_64": "qemu-system-x86",
	}
}

func knownNames() string {
	names := slices.Sorted(maps.Keys(goTools()))
	names = append(names, slices.Sorted(maps.Keys(systemTools()))...)
	return strings.Join(names, " ")
}
