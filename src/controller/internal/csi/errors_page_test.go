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
	for heading, files := range map[string][]string{
		"Of the controller": {"*.go", "../fleet/peer.go", "../../../internal/rpc/server.go"},
		"Commands":          {"../admin/*.go", "../inventory/overview.go", "../moves/*.go"},
	} {
		rows, err := docs.Table("reference/errors.md", heading)
		if err != nil {
			t.Fatal(err)
		}
		made := messages(t, files)
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
			t.Errorf("messages of the code alone (-) and of errors.md, %q, alone (+):\n%s", heading, diff)
		}
	}
}

// message is what a caller may read, with "…" for what is put in.
type message struct{ code, text string }

// messages are those of the errors that the functions of some files give, read from the source.
func messages(t *testing.T, patterns []string) (all []message) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && len(call.Args) >= 2 {
					if m, ok := messageOf(call); ok {
						all = append(all, m)
					}
				}
				return true
			})
		}
	}
	if len(all) < 15 {
		t.Fatalf("only %d messages were found", len(all))
	}
	return all
}

// messageOf is that of a status.Error or status.Errorf, or of a problem for which a move is refused.
func messageOf(call *ast.CallExpr) (m message, ok bool) {
	s, ok := call.Fun.(*ast.SelectorExpr)
	switch {
	case ok && strings.HasPrefix(s.Sel.Name, "Error") && name(s.X) == "status":
		code, _ := call.Args[0].(*ast.SelectorExpr)
		m.code = code.Sel.Name
	case ok && s.Sel.Name == "add":
		m.code = "FailedPrecondition"
	default:
		return m, false
	}
	m.text = shown(literal(call.Args[1]))
	return m, true
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
