package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// completed is how many names a shell is given at most.
const completed = 500

// Nodes gives names of nodes, at most completed. The namespace means nothing.
func Nodes(ctx context.Context, api kubernetes.Interface, _ string) (found []string, err error) {
	all, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: completed})
	if err != nil {
		return nil, err
	}
	for _, n := range all.Items {
		found = append(found, n.Name)
	}
	return found, nil
}

// Claims gives names of claims of a namespace, at most completed.
func Claims(ctx context.Context, api kubernetes.Interface, namespace string) (found []string, err error) {
	all, err := api.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{Limit: completed})
	if err != nil {
		return nil, err
	}
	for _, c := range all.Items {
		found = append(found, c.Name)
	}
	return found, nil
}
