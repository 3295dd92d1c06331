package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	const makefile = "up: ## start\n\tgo run .\n"
	tests := []struct {
		name, doc string
		want      string // part of the error; empty: none
	}{
		{"links and targets that exist", "# A b\n[x](other.md#two-words) [y](#a-b) [z](https://example.org/gone)\nType " +
			"`make up`.\n", ""},
		{"code blocks hold no links", "```\nx[i](y)\n```\n", ""},
		{"missing file", "[x](gone.md)\n", "links to gone.md, but there is no gone.md"},
		{"missing heading", "[x](other.md#three)\n", "other.md has no such heading"},
		{"missing target in text", "Type `make upp` now.\n", "`make upp`, which is no target"},
		{"missing target in a block", "```sh\nmake dwon\n```\n", "`make dwon`, which is no target"},
		{"make in prose is a verb", "We make mistakes with `x`.\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "Makefile", makefile)
			write(t, dir, "other.md", "## Two words!\n")
			write(t, dir, "doc.md", tt.doc)
			err := run(dir)
			if tt.want == "" && err != nil {
				t.Fatalf("run: %v, want no problem", err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("run: %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
