// Package programs says what is built from source, and how. A change here gives new cache keys, and with them a new
// node image.
package programs

import (
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/versions"
)

// KubernetesVersion is what a node image built here contains: the newest patch
// release whose module can be downloaded.
const KubernetesVersion = "v1.37.1"

// Debian is the suite of the root filesystem. Newer ones have a systemd that
// refuses to start on hosts with cgroup v1.
const Debian = "bookworm"

// Program is a set of Go binaries from one module.
type Program struct {
	Name    string
	Module  string
	Version string
	// Packages are import paths of main packages in Module or in what it requires; empty means Module itself.
	Packages []string
	// Tests are import paths of packages whose test binaries are compiled too: k8s.io/kubernetes/test/e2e is e2e.test.
	Tests []string
	Tags  string
	// Ldflags are linker flags beyond -s -w.
	Ldflags string
	// StagingVersion is set for Kubernetes alone: the version of its staging
	// modules, which its go.mod replaces by folders that the module lacks.
	StagingVersion string
	// Usual is how long two cores compile it.
	Usual time.Duration
}

// Named are the programs that others ask for by name.
func Named() map[string]Program {
	named := map[string]Program{}
	for _, p := range []Program{
		CertManager(), CSIProvisioner(), CSIResizer(), CSISnapshotter(), SnapshotController(), LocalPath(), E2ESuite(),
	} {
		named[p.Name] = p
	}
	return named
}

// Key names the program's folder in the cache: it changes with everything that the binaries are made from.
func (p Program) Key() string {
	made := Key(slices.Concat(p.Packages, p.Tests,
		[]string{p.Module, p.Tags, p.Ldflags, p.StagingVersion, runtime.Version()})...)
	return p.Name + "-" + p.Version + "-linux-" + runtime.GOARCH + "-" + made
}

// Kubernetes is Kubernetes' control plane, node agent and clients.
func Kubernetes() Program {
	const module = "k8s.io/kubernetes"
	names := []string{
		"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubeadm", "kubectl",
	}
	packages := make([]string, len(names))
	for i, name := range names {
		packages[i] = module + "/cmd/" + name
	}
	major, minor, patch := split(KubernetesVersion)
	const variables = "k8s.io/component-base/version."
	// kubeadm refuses to work when it does not know its own version.
	return Program{
		Name:     "kubernetes",
		Module:   module,
		Version:  KubernetesVersion,
		Packages: packages,
		Ldflags: strings.Join([]string{
			"-X", variables + "gitVersion=" + KubernetesVersion,
			"-X", variables + "gitMajor=" + major,
			"-X", variables + "gitMinor=" + minor,
			"-X", variables + "gitTreeState=clean",
		}, " "),
		StagingVersion: "v0." + minor + "." + patch,
		Usual:          9 * time.Minute,
	}
}

// E2ESuite is Kubernetes' own end-to-end suite, e2e.test, with what runs it, and with what its pods run.
func E2ESuite() Program {
	p := Kubernetes()
	p.Name, p.Usual = "e2e-suite", 12*time.Minute
	p.Packages = []string{
		"github.com/onsi/ginkgo/v2/ginkgo", p.Module + "/cmd/kubectl", p.Module + "/test/images/agnhost",
	}
	p.Tests = []string{p.Module + "/test/e2e"}
	return p
}

// Etcd is the store of the control plane. kubeadm names its image.
func Etcd() Program {
	return Program{Name: "etcd", Module: "go.etcd.io/etcd/server/v3", Version: "v3.7.0", Usual: 75 * time.Second}
}

// Containerd is the container runtime of the nodes.
func Containerd() Program {
	const module = "github.com/containerd/containerd/v2"
	return Program{
		Name:     "containerd",
		Module:   module,
		Version:  "v2.3.7",
		Packages: []string{module + "/cmd/containerd", module + "/cmd/ctr", module + "/cmd/containerd-shim-runc-v2"},
		Tags:     "no_btrfs no_devmapper no_zfs",
		Usual:    110 * time.Second,
	}
}

// CoreDNS is the cluster's name service.
func CoreDNS() Program {
	return Program{
		Name: "coredns", Module: "github.com/coredns/coredns", Version: "v1.14.7", Usual: 110 * time.Second,
	}
}

// CSIProvisioner is the sidecar that turns claims into CSI calls.
func CSIProvisioner() Program {
	return sidecar("csi-provisioner", "github.com/kubernetes-csi/external-provisioner/v6", versions.CSIProvisioner)
}

// CSIResizer is the sidecar that turns claims which ask for more into CSI calls.
func CSIResizer() Program {
	return sidecar("csi-resizer", "github.com/kubernetes-csi/external-resizer/v2", versions.CSIResizer)
}

// snapshotterModule has both programs of VolumeSnapshots.
const snapshotterModule = "github.com/kubernetes-csi/external-snapshotter/v8"

// CSISnapshotter is the sidecar that turns VolumeSnapshotContents into CSI calls.
func CSISnapshotter() Program {
	return sidecar("csi-snapshotter", snapshotterModule, versions.CSISnapshotter)
}

// SnapshotController makes VolumeSnapshotContents of VolumeSnapshots, for all drivers of a cluster.
func SnapshotController() Program {
	return sidecar("snapshot-controller", snapshotterModule, versions.CSISnapshotter)
}

func sidecar(name, module, version string) Program {
	return Program{
		Name: name, Module: module, Version: version, Packages: []string{module + "/cmd/" + name},
		Ldflags: "-X main.version=" + version, Usual: 100 * time.Second,
	}
}

// LocalPath is rancher's provisioner, which is measured beside ours and gives pools of ours their claims.
func LocalPath() Program {
	const name = "local-path-provisioner"
	return Program{
		Name: name, Module: "github.com/rancher/" + name, Version: versions.LocalPath, Usual: 100 * time.Second,
	}
}

// CertManager is what makes and injects certificates where a cluster asks for it.
func CertManager() Program {
	const (
		module = "github.com/cert-manager/cert-manager"
		// The newest whose binaries lie in its main module; those of later ones are in modules that no proxy serves.
		version = "v1.11.5"
	)
	return Program{
		Name:     "cert-manager",
		Module:   module,
		Version:  version,
		Packages: []string{module + "/cmd/controller", module + "/cmd/webhook", module + "/cmd/cainjector"},
		Ldflags:  "-X " + module + "/pkg/util.AppVersion=" + version,
		Usual:    3 * time.Minute,
	}
}

// DebianPackages are what a node needs beyond Debian's minimal system:
// an init system, network and storage tools, runc and the CNI plugins.
func DebianPackages() []string {
	return strings.Fields(`systemd systemd-sysv dbus conntrack iptables nftables iproute2 ethtool
		util-linux mount kmod libseccomp2 pigz ca-certificates curl jq procps hostname
		runc containernetworking-plugins e2fsprogs xfsprogs btrfs-progs`)
}

// Key condenses parts into twelve hexadecimal digits.
func Key(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:12]
}

// split cuts "v1.37.1" into "1", "37", "1".
func split(version string) (major, minor, patch string) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, patch, _ = strings.Cut(rest, ".")
	return major, minor, patch
}
