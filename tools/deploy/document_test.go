package main

import (
	"slices"
	"testing"
)

const rendering3 = `---
# Source: hostpath-provisioner/templates/a.yaml
# Why it is there.
apiVersion: v1
kind: Service
metadata:
  name: a
  labels:
    app.kubernetes.io/managed-by: Helm
    app.kubernetes.io/name: hostpath-provisioner
    helm.sh/chart: hostpath-provisioner-0.1.0
  annotations:
    kind: ConfigMap
---
# Source: hostpath-provisioner/templates/empty.yaml
# Nothing but a comment.
---
# Source: hostpath-provisioner/templates/b.yaml
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: b
  labels:
    app.kubernetes.io/managed-by: Helm
provisioner: c
`

func TestDocuments(t *testing.T) {
	var kinds, manifests []string
	for _, document := range documents(rendering3) {
		kinds = append(kinds, kind(document))
		manifests = append(manifests, clean(document, kind(document) == "StorageClass"))
	}
	if want := []string{"Service", "StorageClass"}; !slices.Equal(kinds, want) {
		t.Errorf("kinds %v, want %v", kinds, want)
	}
	want := []string{
		"# Why it is there.\napiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  labels:\n" +
			"    app.kubernetes.io/name: hostpath-provisioner\n  annotations:\n    kind: ConfigMap\n",
		"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata:\n  name: b\nprovisioner: c\n",
	}
	if !slices.Equal(manifests, want) {
		t.Errorf("got\n%q\nwant\n%q", manifests, want)
	}
}
