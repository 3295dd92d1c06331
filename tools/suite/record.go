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
	ended := e.Action == "pass" || e.Action == "skip" || e.Action == "fail"
	switch {
	case e.Action == "output":
		p.add(e.Test, e.Output)
	case ended && e.Test == "":
		return p.print(out, e.Action == "fail")
	case ended && e.Action != "fail":
		p.text[e.Test] = "" // what a test says that has passed is for go test -v
	}
	return nil
}

func (p *unfinished) add(test, text string) {
	if _, has := p.text[test]; !has && test != "" {
		p.order = append(p.order, test)
	}
	if strings.HasPrefix(text, "=== ") { // for go test -v, too
		text = ""
	}
	p.text[test] += text
}

// print shows what is left of the tests, and the package's own lines last: all if it has failed, else its result.
func (p *unfinished) print(out io.Writer, failed bool) error {
	var text strings.Builder
	for _, test := range append(p.order, "") {
		for line := range strings.Lines(p.text[test]) {
			if failed || strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "? ") {
				text.WriteString(line)
			}
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}
