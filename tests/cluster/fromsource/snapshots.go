package fromsource

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource/internal/gobuild"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/versions"
)

// SnapshotController is the image of what binds VolumeSnapshots, as ProgramImage takes it.
const SnapshotController = "sig-storage/snapshot-controller:" + versions.CSISnapshotter

// SnapshotManifests are what a cluster has for VolumeSnapshots beside a driver, as upstream's modules carry it.
type SnapshotManifests struct {
	// Definitions are the CustomResourceDefinitions, without those of group snapshots.
	Definitions []byte
	// Controller is the Deployment that runs SnapshotController, and its rights.
	Controller []byte
}

// controllersImage is what upstream's Deployment names: the release before its own.
var controllersImage = regexp.MustCompile(`sig-storage/snapshot-controller:\S+`)

// Snapshots reads the manifests, from modules that are downloaded first if Go's cache does not have them.
func Snapshots(ctx context.Context) (SnapshotManifests, error) {
	const module = "github.com/kubernetes-csi/external-snapshotter/"
	definitions, err := filesOf(ctx, module+"client/v8", "config/crd/snapshot.storage.k8s.io_*.yaml", 3)
	if err != nil {
		return SnapshotManifests{}, err
	}
	controller, err := filesOf(ctx, module+"v8", "deploy/kubernetes/snapshot-controller/*-snapshot-controller.yaml", 2)
	if err != nil {
		return SnapshotManifests{}, err
	}
	if found := controllersImage.FindAll(controller, -1); len(found) != 1 {
		return SnapshotManifests{}, fmt.Errorf("the manifests of snapshot-controller %s name %d images of it, want one",
			versions.CSISnapshotter, len(found))
	}
	controller = controllersImage.ReplaceAllLiteral(controller, []byte(SnapshotController))
	return SnapshotManifests{Definitions: definitions, Controller: controller}, nil
}

// filesOf are the files of a module that a pattern names, which has to be so many, as documents of one.
func filesOf(ctx context.Context, module, pattern string, want int) ([]byte, error) {
	download, err := gobuild.Fetch(ctx, module, versions.CSISnapshotter)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(download.Dir, filepath.FromSlash(pattern)))
	if err != nil {
		return nil, err
	}
	if len(files) != want {
		return nil, fmt.Errorf("look for %s in %s: found %q, want %d files", pattern, download.Dir, files, want)
	}
	var all [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return bytes.Join(all, []byte("\n---\n")), nil
}
