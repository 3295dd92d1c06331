package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

const (
	nodes = "/api/v1/nodes"
	// watchTime is how long one watch goes on, watchPause how soon the next begins; or twice that.
	watchTime, watchPause = 5 * time.Minute, 5 * time.Second
)

// Run watches the node until ctx ends and gives its labels to learned whenever they are new.
func (c *Client) Run(ctx context.Context, learned func(labels map[string]string)) error {
	see := func(node *metav1.PartialObjectMetadata) {
		if before := c.node.Swap(node); before == nil || !maps.Equal(before.Labels, node.Labels) {
			c.Log.InfoContext(ctx, "learned the labels of the node", logging.KeyNode, node.Name)
			learned(maps.Clone(node.Labels))
		}
	}
	silent := false
	for ctx.Err() == nil {
		err := c.watchNode(ctx, see)
		if err != nil && ctx.Err() == nil && !silent { // said once until it works again
			c.Log.WarnContext(ctx, "cannot watch the node", logging.KeyNode, c.NodeName, logging.KeyError, err)
		}
		silent = err != nil
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(watchPause, 1)):
		}
	}
	return nil
}

// watchNode shows the node as it is and as it changes. The API ends a watch after its time.
func (c *Client) watchNode(ctx context.Context, see func(*metav1.PartialObjectMetadata)) error {
	query := url.Values{"fieldSelector": {metav1.ObjectNameField + "=" + c.NodeName}}
	var list metav1.PartialObjectMetadataList
	if err := c.read(ctx, nodes, asList, query, &list); err != nil {
		return fmt.Errorf("list it: %w", err)
	}
	for i := range list.Items {
		see(&list.Items[i])
	}
	query.Set("watch", "true")
	query.Set("resourceVersion", list.ResourceVersion)
	query.Set("timeoutSeconds", strconv.Itoa(int(wait.Jitter(watchTime, 1).Seconds())))
	body, err := c.API.open(ctx, nodes, asMetadata, query)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	for decoder := json.NewDecoder(body); ; {
		var event struct {
			Type   watch.EventType
			Object metav1.PartialObjectMetadata
		}
		switch err := decoder.Decode(&event); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("watch it: %w", err)
		case event.Type == watch.Error:
			return errors.New("the API has ended its watch")
		case event.Type == watch.Added || event.Type == watch.Modified:
			see(&event.Object)
		}
	}
}
