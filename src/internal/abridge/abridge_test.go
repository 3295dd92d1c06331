package abridge_test

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/abridge"
)

func TestNames(t *testing.T) {
	got := abridge.Names([]string{"a", "b", "c", "d", "e", "f", "g"})
	if got != "a, b, c, d, e and 2 more" || abridge.Names([]string{"a", "b"}) != "a, b" {
		t.Error(got)
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"10Gi … é": "10Gi … é", "\x1b[2Ja\nb\tc\x00": " [2Ja b c ", "\u202e\u200b": "  ", "": "",
	} {
		if got := abridge.Printable(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb": "a b", "a" + strings.Repeat("é", 1000): "a" + strings.Repeat("é", 255) + "…",
		strings.Repeat("\xff", 1000): strings.Repeat("\ufffd", 170) + "…",
	} {
		if got := abridge.Line(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
