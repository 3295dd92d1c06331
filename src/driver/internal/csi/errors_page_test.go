package csi

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/docs"
)

// callsByName are the verbs whose codes differ from those of all others, by the call that the page names.
func callsByName() map[string]verb {
	return map[string]verb{
		"CreateVolume": create, "DeleteVolume": remove, "NodePublishVolume": publish, "NodeUnpublishVolume": unpublish,
		"NodeExpandVolume": expand, "ControllerExpandVolume": resize, "CreateSnapshot": cut, "": read,
	}
}

// TestErrorsPage: docs/reference/errors.md lists the words and codes of every error of the table, and no other.
func TestErrorsPage(t *testing.T) {
	rows, err := docs.Table("reference/errors.md", "Of a node")
	if err != nil {
		t.Fatal(err)
	}
	but := regexp.MustCompile("`(\\w+)` in (\\w+)")
	told := map[string]map[string]string{}
	for _, row := range rows {
		words := strings.Trim(row[0], "`")
		told[words] = map[string]string{"": strings.Trim(row[1], "`")}
		for _, match := range but.FindAllStringSubmatch(row[2], -1) {
			told[words][match[2]] = match[1]
		}
	}
	is := map[string]map[string]string{}
	for _, r := range table() {
		for _, known := range r.errs {
			usual := status.Code(toStatus(read, known)).String()
			is[known.Error()] = map[string]string{"": usual}
			for call, v := range callsByName() {
				if code := status.Code(toStatus(v, known)).String(); code != usual {
					is[known.Error()][call] = code
				}
			}
		}
	}
	if diff := cmp.Diff(is, told); diff != "" {
		t.Errorf("codes of errors.go (-) and of docs/reference/errors.md (+):\n%s", diff)
	}
	if code := status.Code(toStatus(read, errors.New("anything else"))); code != codes.Internal {
		t.Errorf("anything else is %s, the page says Internal", code)
	}
}
