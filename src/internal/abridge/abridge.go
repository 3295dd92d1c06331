// Package abridge makes text of others fit for people: short, and without what a terminal obeys.
package abridge

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names lists the first few names, and says how many more there are.
func Names(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Printable replaces what is no printable character, as a terminal takes escape sequences and line ends for commands.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// Line is the beginning of a text, printable, of some 512 bytes at most: for what is kept of others' texts.
func Line(text string) string {
	end := 512
	if text = Printable(text); len(text) <= end {
		return text
	}
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// WithoutNumbers is a text without its digits, which change where it says the same.
func WithoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
}
