package main

import "strings"

// file is one manifest: which objects of a rendering it holds, in their order, or a file of the chart as it is.
type file struct {
	name, title string
	// source is the chart's file, "" of a rendering.
	source string
	// sample: an object for a person to change, so without the labels by which a release knows its own.
	sample bool
	args   []string // further arguments of `helm template`
	keep   func(document string) bool
}

func files() []file {
	operator := []string{"--set", "operator.enabled=true"}
	return append([]file{
		{
			// Apart: whoever deletes it deletes the HostPathProvisioner too.
			name:   "crd.yaml",
			title:  "The definition of HostPathProvisioner. The operator brings it too, and keeps it up to date.",
			source: "files/crd.yaml",
		},
		{
			name: "operator.yaml", title: "The operator: rights, base values, and the Deployment.",
			args: operator,
			keep: func(document string) bool { return !ofWebhook(document) },
		},
		{
			name:  "webhook.yaml",
			title: "What leads the API server to the operator. The operator makes the certificate itself.",
			args:  operator, keep: ofWebhook,
		},
		class("storageclass-wffc-csi.yaml", "A class of the CSI driver, for the pool of hostpathprovisioner_cr.yaml.",
			`storagePools=[{"name":"local","path":"/var/hpvolumes"}]`,
			`storageClasses=[{"name":"hostpath-csi","storagePool":"local"}]`),
		class("storageclass-wffc-legacy-csi.yaml",
			"A class of the CSI driver, for the pool that hostpathprovisioner_legacy_cr.yaml makes of its pathConfig.",
			`storagePools=[{"name":"legacy","path":"/var/hpvolumes"}]`,
			`storageClasses=[{"name":"hostpath-csi","storagePool":"legacy"}]`),
		legacyClass("storageclass-wffc.yaml",
			"A class of the legacy provisioner; a volume is made where its first pod goes.",
			`[{"name":"hostpath-provisioner"}]`),
		legacyClass("storageclass-immediate.yaml",
			"A class of the legacy provisioner; a claim needs the annotation kubevirt.io/provisionOnNode with the "+
				"name of a node.",
			`[{"name":"hostpath-provisioner-immediate","volumeBindingMode":"Immediate"}]`),
		{
			name: "network-filesystem-provisioner.yaml",
			title: "The provisioner of storage that all nodes have mounted, under torchbox's name. Its path, /ceph, " +
				"is where the storage\n# is mounted on the nodes: change it in the Deployment.",
			args: setJSON(networkFSValues()),
			keep: func(document string) bool {
				return strings.Contains(document, "app.kubernetes.io/component: shared-") &&
					kind(document) != "StorageClass"
			},
		},
		class("storageclass-network-filesystem.yaml",
			"A class of network-filesystem-provisioner.yaml. pvDir is its path, or a directory below it.",
			networkFSValues()...),
	}, everyNodeFiles()...)
}

// everyNodeFiles are the provisioner of volumes that are on every node, and a class of it.
func everyNodeFiles() []file {
	return []file{
		{
			name: "every-node-provisioner.yaml",
			title: "The provisioner of volumes that are on every node, under kubeboost's name: the provisioner, and " +
				"the managers on the\n# nodes. Its path, /var/kubernetes, is in the arguments of both and in the " +
				"managers' volume.",
			args: setJSON(everyNodeValues()),
			keep: func(document string) bool {
				return strings.Contains(document, "app.kubernetes.io/component: every-node") &&
					kind(document) != "StorageClass"
			},
		},
		class("storageclass-every-node.yaml", "A class of every-node-provisioner.yaml, as kubeboost has it.",
			everyNodeValues()...),
	}
}

// everyNodeValues are kubeboost's, and no class but its own.
func everyNodeValues() []string {
	return []string{"storageClasses=[]", "legacyProvisioner.everyNode.enabled=true"}
}

// networkFSValues are one instance, as torchbox prints it, and no class but its own.
func networkFSValues() []string {
	return []string{
		"storageClasses=[]", "legacyProvisioner.shared.enabled=true",
		`legacyProvisioner.shared.instances=[{"name":"torchbox.com/hostpath","path":"/ceph",` +
			`"storageClasses":[{"name":"cephfs","pvDir":"/ceph/pvs"}]}]`,
	}
}

// class is a sample of one StorageClass, from values as `helm --set-json` takes them.
func class(name, title string, values ...string) file {
	keep := func(document string) bool { return kind(document) == "StorageClass" }
	return file{name: name, title: title, sample: true, args: setJSON(values), keep: keep}
}

func setJSON(values []string) (args []string) {
	for _, value := range values {
		args = append(args, "--set-json", value)
	}
	return args
}

func legacyClass(name, title, classes string) file {
	return class(name, title, "storageClasses=[]", "legacyProvisioner.enabled=true",
		"legacyProvisioner.storageClasses="+classes)
}

func ofWebhook(document string) bool {
	return kind(document) == "Service" || kind(document) == "ValidatingWebhookConfiguration"
}
