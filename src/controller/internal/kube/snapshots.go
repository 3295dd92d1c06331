package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// contentsPath is where the API has VolumeSnapshotContents, contentsPage how many it is asked for at a time.
const contentsPath, contentsPage = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents", "500"

// contentList is of VolumeSnapshotContents what is asked for (external-snapshotter, client/apis/volumesnapshot/v1).
type contentList struct {
	Metadata metav1.ListMeta `json:"metadata"`
	Items    []struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			Driver string `json:"driver"`
			Source struct {
				Handle string `json:"snapshotHandle"` // of one that somebody has made by hand
			} `json:"source"`
		} `json:"spec"`
		Status struct {
			Handle string `json:"snapshotHandle"`
		} `json:"status"`
	} `json:"items"`
}

// SnapshotContents are the names of this driver's VolumeSnapshotContents by their handles, by an answer of the API. It
// gives nil where the cluster does not have them, or the chart's value snapshots is off, so that the controller may not
// list them.
func (c *Cluster) SnapshotContents(ctx context.Context) (map[string][]string, error) {
	contents := map[string][]string{}
	for next, more := "", true; more; more = next != "" {
		text, err := c.api.CoreV1().RESTClient().Get().AbsPath(contentsPath).SetHeader("Accept", "application/json").
			Param("limit", contentsPage).Param("continue", next).DoRaw(ctx)
		var page contentList
		if err == nil {
			err = json.Unmarshal(text, &page)
		}
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("%w: list VolumeSnapshotContents: %w", nodeapi.ErrClusterUnknown, err)
		}
		for _, is := range page.Items {
			handle := cmp.Or(is.Status.Handle, is.Spec.Source.Handle)
			if is.Spec.Driver == c.DriverName && handle != "" {
				contents[handle] = append(contents[handle], is.Metadata.Name)
			}
		}
		next = page.Metadata.Continue
	}
	return contents, nil
}
