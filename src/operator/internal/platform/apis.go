package platform

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// settling is how long after a change of a definition the API server is asked.
	settling = 200 * time.Millisecond
	// How often, and after which times, it is asked again when its answer does not agree with the definition yet.
	retryFirst = 200 * time.Millisecond
	retryMost  = 30 * time.Second
	retries    = 12
)

// groups are those of APIs that some clusters have and the chart, or the TLS policy, makes use of.
func groups() []string {
	return []string{
		"cert-manager.io", "config.openshift.io", "monitoring.coreos.com", "security.openshift.io",
		"snapshot.storage.k8s.io",
	}
}

// matters reports whether a definition is of one of the groups. Its name is <plural>.<group>.
func matters(definition string) bool {
	_, group, _ := strings.Cut(definition, ".")
	return slices.Contains(groups(), group)
}

// readFacts makes facts of what discovery found, without subresources.
func readFacts(lists []*metav1.APIResourceList) Facts {
	var facts Facts
	for _, list := range lists {
		facts.APIVersions = append(facts.APIVersions, list.GroupVersion)
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") {
				continue
			}
			facts.APIVersions = append(facts.APIVersions, list.GroupVersion+"/"+resource.Kind)
			facts.resources = append(facts.resources, strings.TrimSuffix(resource.Name+"."+group.Group, "."))
		}
	}
	return facts
}

// within reports whether an API version, with or without a kind, is of a group.
func within(apiVersion string, group schema.GroupVersion) bool {
	return apiVersion == group.String() || strings.HasPrefix(apiVersion, group.String()+"/")
}
