package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

type repository struct {
	files   fs.FS
	targets []string            // of the Makefile
	docs    map[string]document // by path
	code    code
}

// document is what doccheck needs of one Markdown file.
type document struct {
	links   []string // as written, between the parentheses
	targets []string // words that follow `make` in code
	anchors []string // what #fragments may name
	names   names
}

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	makePattern    = regexp.MustCompile(`(?:^|[\x60;&]\s*|\$ )make ([a-z][a-z0-9-]*)`)
	targetPattern  = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	headingPattern = regexp.MustCompile(`^#+ +(.+)$`)
	anchorDrop     = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

func makeTargets(makefile string) []string {
	var targets []string
	for _, match := range targetPattern.FindAllStringSubmatch(makefile, -1) {
		targets = append(targets, match[1])
	}
	return targets
}

// parse reads links and headings outside code blocks, make targets in code, and names.
func parse(text string) document {
	var doc document
	inBlock := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inBlock = !inBlock
			continue
		}
		doc.names.readNames(line, inBlock)
		if inBlock || strings.Contains(line, "`") {
			for _, match := range makePattern.FindAllStringSubmatch(strings.TrimSpace(line), -1) {
				doc.targets = append(doc.targets, match[1])
			}
		}
		if inBlock {
			continue
		}
		for _, match := range linkPattern.FindAllStringSubmatch(line, -1) {
			doc.links = append(doc.links, match[1])
		}
		if match := headingPattern.FindStringSubmatch(line); match != nil {
			doc.anchors = append(doc.anchors, anchor(match[1]))
		}
	}
	return doc
}

// anchor turns a heading into the fragment that GitHub gives it.
func anchor(heading string) string {
	return strings.ReplaceAll(strings.ToLower(anchorDrop.ReplaceAllString(heading, "")), " ", "-")
}

// check returns one sentence for each thing that doc, which lies at from, points at in vain.
func (r repository) check(from string, doc document) []string {
	var problems []string
	for _, target := range doc.targets {
		if !slices.Contains(r.targets, target) {
			problems = append(problems, fmt.Sprintf("names `make %s`, which is no target of the Makefile", target))
		}
	}
	for _, link := range doc.links {
		if problem := r.checkLink(from, link); problem != "" {
			problems = append(problems, problem)
		}
	}
	return append(problems, r.code.check(from, doc.names)...)
}

func (r repository) checkLink(from, link string) string {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return "" // reaching the network would make the check depend on other people's servers
	}
	file, fragment, _ := strings.Cut(link, "#")
	target := from
	if file != "" {
		target = path.Join(path.Dir(from), file)
	}
	if _, err := fs.Stat(r.files, target); err != nil {
		return fmt.Sprintf("links to %s, but there is no %s", link, target)
	}
	doc, isDoc := r.docs[target]
	if fragment != "" && isDoc && !slices.Contains(doc.anchors, fragment) {
		return fmt.Sprintf("links to %s, but %s has no such heading", link, target)
	}
	return ""
}
