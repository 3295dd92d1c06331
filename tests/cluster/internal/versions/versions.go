// Package versions pins everything a cluster is made of. A change here gives
// new cache keys, and with them a new node image.
package versions

import (
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"slices"
	"strings"
)

// Kind is the version of the kind library, as in go.mod. Its module also
// carries the files of the node image.
const Kind = "v0.33.0"

// PublicNodeImage is the node image of that version of kind.
const PublicNodeImage = "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"

// Kubernetes is what a node image built here contains: the newest patch
// release whose module can be downloaded.
const Kubernetes = "v1.37.1"

// CSIProvisioner is the sidecar version, which the chart names too.
const CSIProvisioner = "v6.3.0"

// CSIResizer is the version of the sidecar that grows volumes, which the chart names too.
const CSIResizer = "v2.3.0"

// CertManager is the newest version whose binaries lie in its main module; those of later ones are in modules that no
// proxy serves.
const CertManager = "v1.11.5"

// Debian is the suite of the root filesystem. Newer ones have a systemd that
// refuses to start on hosts with cgroup v1.
const Debian = "bookworm"

// Program is a set of Go binaries from one module.
type Program struct {
	Name    string
	Module  string
	Version string
	// Packages are import paths of main packages in Module; empty means Module itself.
	Packages []string
	Tags     string
	// Ldflags are linker flags beyond -s -w.
	Ldflags string
	// StagingVersion is set for Kubernetes alone: the version of its staging
	// modules, which its go.mod replaces by folders that the module lacks.
	StagingVersion string
}

// Key names the program's folder in the cache: it changes with everything that the binaries are made from.
func (p Program) Key() string {
	made := Key(append(slices.Clone(p.Packages), p.Module, p.Tags, p.Ldflags, p.StagingVersion, runtime.Version())...)
	return p.Name + "-" + p.Version + "-linux-" + runtime.GOARCH + "-" + made
}

// KubernetesProgram is Kubernetes' control plane, node agent and clients.
func KubernetesProgram() Program {
	const module = "k8s.io/kubernetes"
	names := []string{
		"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubeadm", "kubectl",
	}
	packages := make([]string, len(names))
	for i, name := range names {
		packages[i] = module + "/cmd/" + name
	}
	major, minor, patch := split(Kubernetes)
	const variables = "k8s.io/component-base/version."
	// kubeadm refuses to work when it does not know its own version.
	return Program{
		Name:     "kubernetes",
		Module:   module,
		Version:  Kubernetes,
		Packages: packages,
		Ldflags: strings.Join([]string{
			"-X", variables + "gitVersion=" + Kubernetes,
			"-X", variables + "gitMajor=" + major,
			"-X", variables + "gitMinor=" + minor,
			"-X", variables + "gitTreeState=clean",
		}, " "),
		StagingVersion: "v0." + minor + "." + patch,
	}
}

// EtcdProgram is the store of the control plane. kubeadm names its image.
func EtcdProgram() Program {
	return Program{Name: "etcd", Module: "go.etcd.io/etcd/server/v3", Version: "v3.7.0"}
}

// ContainerdProgram is the container runtime of the nodes.
func ContainerdProgram() Program {
	const module = "github.com/containerd/containerd/v2"
	return Program{
		Name:     "containerd",
		Module:   module,
		Version:  "v2.3.7",
		Packages: []string{module + "/cmd/containerd", module + "/cmd/ctr", module + "/cmd/containerd-shim-runc-v2"},
		Tags:     "no_btrfs no_devmapper no_zfs",
	}
}

// CoreDNSProgram is the cluster's name service.
func CoreDNSProgram() Program {
	return Program{Name: "coredns", Module: "github.com/coredns/coredns", Version: "v1.14.7"}
}

// CSIProvisionerProgram is the sidecar that turns claims into CSI calls.
func CSIProvisionerProgram() Program {
	return sidecar("csi-provisioner", "github.com/kubernetes-csi/external-provisioner/v6", CSIProvisioner)
}

// CSIResizerProgram is the sidecar that turns claims which ask for more into CSI calls.
func CSIResizerProgram() Program {
	return sidecar("csi-resizer", "github.com/kubernetes-csi/external-resizer/v2", CSIResizer)
}

func sidecar(name, module, version string) Program {
	return Program{
		Name: name, Module: module, Version: version, Packages: []string{module + "/cmd/" + name},
		Ldflags: "-X main.version=" + version,
	}
}

// CertManagerProgram is what makes and injects certificates where a cluster asks for it.
func CertManagerProgram() Program {
	const module = "github.com/cert-manager/cert-manager"
	return Program{
		Name:     "cert-manager",
		Module:   module,
		Version:  CertManager,
		Packages: []string{module + "/cmd/controller", module + "/cmd/webhook", module + "/cmd/cainjector"},
		Ldflags:  "-X " + module + "/pkg/util.AppVersion=" + CertManager,
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
