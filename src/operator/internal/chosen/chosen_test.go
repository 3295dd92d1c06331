package chosen_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/chosen"
)

func TestName(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		all  []string
		want string
	}{
		"none":                         {nil, ""},
		"the right name":               {[]string{"hostpath-provisioner"}, "hostpath-provisioner"},
		"the right name beside others": {[]string{"a", "hostpath-provisioner", "b"}, "hostpath-provisioner"},
		"another name, alone":          {[]string{"a"}, "a"},
		"two other names":              {[]string{"a", "b"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all []v1beta1.HostPathProvisioner
			for _, one := range test.all {
				all = append(all, v1beta1.HostPathProvisioner{ObjectMeta: metav1.ObjectMeta{Name: one}})
			}
			if got := chosen.Name(all); got != test.want {
				t.Errorf("%q is served, want %q", got, test.want)
			}
		})
	}
}
