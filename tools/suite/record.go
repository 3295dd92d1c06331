package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// event is a line of go test -json (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
	Output  string
}

// recording says what go test is recorded as.
type recording struct {
	folder       string // of the file
	target, part string
	verbose      bool
}

// file is where the seconds are kept.
func (r recording) file() string {
	name := r.target
	if r.part != "" {
		name += "-" + strings.ReplaceAll(r.part, "/", "-")
	}
	return filepath.Join(r.folder, name+".tsv")
}

// record shows the events of go test -json as go test would have, or go test -v, and keeps what each test took.
func record(in io.Reader, out io.Writer, r recording) error {
	if err := os.MkdirAll(r.folder, 0o755); err != nil {
		return fmt.Errorf("make the folder for timings: %w", err)
	}
	file, err := os.Create(r.file())
	if err != nil {
		return fmt.Errorf("keep what the tests take: %w", err)
	}
	defer file.Close()
	kept := bufio.NewWriter(file)
	shown := map[string]*unfinished{} // by package, which go test runs two or more of at a time
	lines := bufio.NewReader(in)      // not a Scanner: a line has no longest
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &e) != nil || e.Action == "": // a word of the go command's
			_, err = out.Write(line)
		default:
			err = errors.Join(err, r.show(out, shown, e), r.keep(kept, e))
		}
		if errors.Is(err, io.EOF) {
			return errors.Join(kept.Flush(), file.Close())
		}
		if err != nil {
			return err
		}
	}
}

// keep writes a line for what has ended.
func (r recording) keep(to io.Writer, e event) error {
	if e.Action != "pass" && e.Action != "fail" || e.Package == "" {
		return nil
	}
	test := e.Test
	if test == "" {
		test = whole
	}
	_, err := fmt.Fprintf(to, "%.2f\t%s\t%s\t%s\n", e.Elapsed, r.target, e.Package, test)
	return err
}

// unfinished is what a package that is being tested has printed.
type unfinished struct {
	order []string // the tests, by their first line
	text  map[string]string
}

// show prints a package when it has ended, as go test does, and everything at once with verbose.
func (r recording) show(out io.Writer, all map[string]*unfinished, e event) error {
	if e.Action == "build-output" || r.verbose {
		_, err := io.WriteString(out, e.Output)
		return err
	}
	p := all[e.Package]
	if p == nil {
		p = &unfinished{text: map[string]string{}}
		all[e.Package] = p
	}
	switch {
	case e.Action == "output":
		if _, has := p.text[e.Test]; !has && e.Test != "" {
			p.order = append(p.order, e.Test)
		}
		if strings.HasPrefix(e.Output, "=== ") { // for go test -v
			e.Output = ""
		}
		p.text[e.Test] += e.Output
	case e.Test != "" && (e.Action == "pass" || e.Action == "skip"):
		p.text[e.Test] = ""
	case e.Test == "" && (e.Action == "pass" || e.Action == "skip"):
		return p.print(out, func(line string) bool { return strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "? ") })
	case e.Test == "" && e.Action == "fail":
		return p.print(out, func(string) bool { return true })
	}
	return nil
}

// print shows the lines that are wanted, the package's own last. Tests that have passed have none left.
func (p *unfinished) print(out io.Writer, wanted func(line string) bool) error {
	var text strings.Builder
	for _, test := range append(p.order, "") {
		for line := range strings.Lines(p.text[test]) {
			if wanted(line) {
				text.WriteString(line)
			}
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}
