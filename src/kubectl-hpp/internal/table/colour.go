package table

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Paint colours text where a person sees it: on a terminal, unless the environment has NO_COLOR (no-color.org).
type Paint bool

// PaintFor is the paint for what is written to w.
func PaintFor(w io.Writer) Paint {
	file, ok := w.(*os.File)
	return Paint(ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(file.Fd())))
}

// Red is for what is broken.
func (p Paint) Red(text string) string { return p.with("31", text) }

// Yellow is for what should be looked at.
func (p Paint) Yellow(text string) string { return p.with("33", text) }

// Green is for what is well.
func (p Paint) Green(text string) string { return p.with("32", text) }

func (p Paint) with(code, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
