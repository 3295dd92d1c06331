package csi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/docs"
)

// TestErrorsPage: docs/reference/errors.md has every message that the controller makes itself with its code, and no
// other. A row has the first words of a message.
func TestErrorsPage(t *testing.T) {
	rows, err := docs.Table("reference/errors.md", "Of the controller")
	if err != nil {
		t.Fatal(err)
	}
	made := messages(t)
	var unknown []string
	for _, row := range rows {
		words, code := strings.Trim(row[0], "`"), strings.Trim(row[1], "`")
		is := func(m message) bool {
			return m.code == code && (m.text == words || words != "…" && strings.HasPrefix(m.text, words))
		}
		if !slices.ContainsFunc(made, is) {
			unknown = append(unknown, code+": "+words)
		}
		made = slices.DeleteFunc(made, is)
	}
	var missing []string
	for _, m := range made {
		missing = append(missing, m.code+": "+m.text)
	}
	if diff := cmp.Diff(missing, unknown); diff != "" {
		t.Errorf("messages of the code alone (-) and of docs/reference/errors.md alone (+):\n%s", diff)
	}
}

// message is what a caller may read, with "…" for what is put in.
type message struct{ code, text string }

// messages are those of status.Error and status.Errorf in what makes the controller's answers, read from the source.
func messages(t *testing.T) (all []message) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../fleet/peer.go", "../../../internal/rpc/server.go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			if s, is := call.Fun.(*ast.SelectorExpr); is && strings.HasPrefix(s.Sel.Name, "Error") &&
				name(s.X) == "status" {
				code, _ := call.Args[0].(*ast.SelectorExpr)
				all = append(all, message{code: code.Sel.Name, text: shown(literal(call.Args[1]))})
			}
			return true
		})
	}
	if len(all) < 15 {
		t.Fatalf("only %d messages were found", len(all))
	}
	return all
}

func name(e ast.Expr) string {
	if identifier, ok := e.(*ast.Ident); ok {
		return identifier.Name
	}
	return ""
}

// literal is the text of a string, of several that are added, or nothing for what is none.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err != nil {
			panic(err)
		}
		return text
	case *ast.BinaryExpr:
		return literal(e.X) + literal(e.Y)
	default:
		return ""
	}
}

// shown puts "…" where something is put in.
func shown(format string) string {
	if format == "" {
		return "…"
	}
	return regexp.MustCompile(`%[.\d]*[a-z](/%s)?`).ReplaceAllString(format, "…")
}
