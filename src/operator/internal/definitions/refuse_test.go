package definitions

import (
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
)

func TestRefuse(t *testing.T) {
	t.Parallel()
	const command = "kubectl annotate customresourcedefinition hostpathprovisioners.hostpathprovisioner.kubevirt.io " +
		"hostpathprovisioner.kubevirt.io/applied-by-"
	for _, test := range []struct {
		by, own string
		want    []string // "": not refused
	}{
		{by: "0.1.0", own: "0.1.0"},
		{by: "0.1.0", own: "0.2.0"},
		{by: "0.9.1", own: "0.10.0"},
		{by: "0.1.0-rc.1", own: "0.1.0"},
		{by: "0.1.0+one", own: "0.1.0+two"},
		{by: "v0.1.0", own: "0.1.0"},
		{by: "0.2.0", own: "0.1.0", want: []string{
			"the operator of version 0.2.0", "this one is 0.1.0", "Upgrade the operator to 0.2.0 or later", command,
		}},
		{by: "0.1.0", own: "0.1.0-rc.1", want: []string{"this one is 0.1.0-rc.1"}},
		{by: "0.0.1", own: "0.0.0-dev", want: []string{"this one is 0.0.0-dev"}},
		{by: "latest", own: "0.1.0", want: []string{`"latest", which is no version`, "(0.1.0)", command}},
		{by: "", own: "0.1.0", want: []string{`"", which is no version`}},
		{by: "1.2", own: "9.9.9", want: []string{`"1.2", which is no version`}},
	} {
		got := refuse(map[string]string{names.AppliedBy: test.by}, version.MustParseSemantic(test.own))
		if (got == "") != (len(test.want) == 0) {
			t.Errorf("%q, own %s: %q", test.by, test.own, got)
		}
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q, own %s: %q does not say %q", test.by, test.own, got, want)
			}
		}
	}
	if got := refuse(map[string]string{"another": "9.9.9"}, version.MustParseSemantic("0.1.0")); got != "" {
		t.Errorf("without the annotation: %q", got)
	}
}

func TestOwnVersion(t *testing.T) {
	t.Parallel()
	if _, err := New(nil, "main", slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), `the version of this operator: could not parse "main" as version`) {
		t.Errorf("error %v", err)
	}
	k, err := New(nil, "0.3.0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if k.wanted.GetName() != Name || k.wanted.GetAnnotations()[names.AppliedBy] != "0.3.0" ||
		len(k.wanted.GetAnnotations()) < 2 {
		t.Errorf("the definition is %s with %v", k.wanted.GetName(), k.wanted.GetAnnotations())
	}
}
