package burst

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

// Requests counts requests to the API server by kind of object; "other" is the rest.
type Requests map[string]float64

// Total is the sum.
func (r Requests) Total() float64 {
	var sum float64
	for _, n := range r {
		sum += n
	}
	return sum
}

func (r Requests) since(before Requests) Requests {
	grown := Requests{}
	for kind, n := range r {
		grown[kind] = n - before[kind]
	}
	return grown
}

// other is the kind of what no schema of its own counts.
const other = "other"

// kinds are the objects that provisioners deal with.
func kinds() []string {
	return []string{
		"persistentvolumeclaims", "persistentvolumes", "pods", "events", "csistoragecapacities", "leases", other,
	}
}

// counter counts the requests of ServiceAccounts exactly, without access to the API server's configuration: a
// FlowSchema for the accounts and each kind of object, sent to the priority level where service accounts are anyway,
// and the API server's own metric of requests dispatched for each schema.
type counter struct {
	client kubernetes.Interface
	prefix string
}

const (
	// level is where requests of service accounts go by default (the built-in FlowSchema service-accounts).
	level = "workload-low"
	// firstPrecedence is before the built-in service-accounts (9000), after all that Kubernetes relies on.
	firstPrecedence = 8000
	// settled is how long the API server may take to use a new FlowSchema.
	settled = 2 * time.Second
)

func newCounter(ctx context.Context, client kubernetes.Interface, s System) (*counter, error) {
	c := &counter{client: client, prefix: "perf-" + s.Name + "-"}
	if err := c.close(); err != nil { // of a run that was killed
		return nil, err
	}
	for i, kind := range kinds() {
		schema := c.schema(s, kind, int32(firstPrecedence+i))
		if _, err := client.FlowcontrolV1().FlowSchemas().Create(ctx, schema, metav1.CreateOptions{}); err != nil {
			return nil, errors.Join(fmt.Errorf("make a FlowSchema to count requests: %w", err), c.close())
		}
	}
	time.Sleep(settled)
	return c, nil
}

func (c *counter) schema(s System, kind string, precedence int32) *flowcontrolv1.FlowSchema {
	var rules flowcontrolv1.PolicyRulesWithSubjects
	for _, account := range s.Accounts {
		rules.Subjects = append(rules.Subjects, flowcontrolv1.Subject{
			Kind:           flowcontrolv1.SubjectKindServiceAccount,
			ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: s.Namespace, Name: account},
		})
	}
	resources := kind
	if kind == other {
		resources = "*"
		rules.NonResourceRules = []flowcontrolv1.NonResourcePolicyRule{
			{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
		}
	}
	rules.ResourceRules = []flowcontrolv1.ResourcePolicyRule{{
		Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: withStatus(resources), Namespaces: []string{"*"},
		ClusterScope: true,
	}}
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: c.prefix + kind},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
			MatchingPrecedence:         precedence,
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{
				Type: flowcontrolv1.FlowDistinguisherMethodByUserType,
			},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{rules},
		},
	}
}

// withStatus adds the subresource that providers write.
func withStatus(resource string) []string {
	if resource == "*" {
		return []string{resource}
	}
	return []string{resource, resource + "/status"}
}

// close removes the schemas.
func (c *counter) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var errs []error
	for _, kind := range kinds() {
		err := c.client.FlowcontrolV1().FlowSchemas().Delete(ctx, c.prefix+kind, metav1.DeleteOptions{})
		if err = ctrlclient.IgnoreNotFound(err); err != nil {
			errs = append(errs, fmt.Errorf("remove a FlowSchema: %w", err))
		}
	}
	return errors.Join(errs...)
}

// read gives the counts since the API server started.
func (c *counter) read(ctx context.Context) (Requests, error) {
	text, err := c.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return parseRequests(text, c.prefix)
}

// parseRequests takes the counts of schemas with a prefix out of metrics in Prometheus' text format.
func parseRequests(text []byte, prefix string) (Requests, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	metrics, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	found := Requests{}
	for _, metric := range metrics["apiserver_flowcontrol_dispatched_requests_total"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if kind, ours := strings.CutPrefix(label.GetValue(), prefix); ours && label.GetName() == "flow_schema" {
				found[kind] += metric.GetCounter().GetValue()
			}
		}
	}
	return found, nil
}
