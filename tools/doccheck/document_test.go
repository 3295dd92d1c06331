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
		{"links and targets that exist", "# A b\n[x](other.md#two-words) [y](#a-b) [z](https://example.org/gone)\n" +
			"Type `make up`.\n", ""},
		{"code blocks hold no links", "```\nx[i](y)\n```\n", ""},
		{"missing file", "[x](gone.md)\n", "links to gone.md, but there is no docs/reference/gone.md"},
		{"missing heading", "[x](other.md#three)\n", "other.md has no such heading"},
		{"missing target in text", "Type `make upp` now.\n", "`make upp`, which is no target"},
		{"missing target in a block", "```sh\nmake dwon\n```\n", "`make dwon`, which is no target"},
		{
			"a value, one below an object, all of a section", "`driver.name`, `driver.labels.mine=x`, `driver.image`\n",
			"",
		},
		{"the second value of a row", "`controller.tag`\n", ""},
		{"a file is no value", "`driver.yaml` and `pods.json`\n", ""},
		{"no such value", "Set `driver.nmae`.\n", "`driver.nmae`, which is no value of the chart"},
		{"no such value beside one in a row", "`controller.name`\n", "`controller.name`, which is no value"},
		{
			"no such value in a block", "```sh\nhelm install hpp --set driver.nmae=x\n```\n",
			"`driver.nmae`, which is no",
		},
		{"metrics", "`hpp_up{node}`, `hpp_rule` and all of `hpp_`\n", ""},
		{"no such metric", "`hpp_down == 0`\n", "the metric `hpp_down`, which is in neither"},
		{"flags and reasons", "| `--mode` | x |\n| `PoolGone`, `--mode` | `--other` |\n", ""},
		{"no such flag", "| `--mood` | x |\n", "the flag `--mood`, which is not in src"},
		{"no such reason", "| `PoolAway` | x |\n", "`PoolAway`, which is not in src"},
		{"make in prose is a verb", "We make mistakes with `x`.\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "Makefile", makefile)
			write(t, dir, "other.md", "## Two words!\n")
			write(t, dir, "docs/reference/doc.md", strings.ReplaceAll(tt.doc, "](other", "](../../other"))
			write(t, dir, "CHANGELOG.md", "`driver.gone` and `hpp_gone`\n")
			write(t, dir, "src/main.go", "Flag(\"mode\"); Gauge(\"hpp_up\"); Event(\"PoolGone\")\n")
			write(t, dir, "charts/hostpath-provisioner/templates/rules.tpl", "record: hpp_rule\n")
			write(t, dir, chartReadme,
				"| `driver.name` | text |\n| `driver.image.tag`, `controller.tag` | |\n| `driver.labels` | object |\n")
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
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
