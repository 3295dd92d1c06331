// Command doccheck reads every Markdown file of the repository and fails where one points at something that is not
// there: a relative link, a heading in a linked file, or a make target.
//
//	go -C tools run ./doccheck ..
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: doccheck REPOSITORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string) error {
	repo, err := readRepository(root)
	if err != nil {
		return err
	}
	var problems []error
	for path, doc := range repo.docs {
		for _, problem := range repo.check(path, doc) {
			problems = append(problems, fmt.Errorf("%s: %s", path, problem))
		}
	}
	return errors.Join(problems...)
}

// readRepository parses the Makefile and every Markdown file below root, hidden folders but .github left out.
func readRepository(root string) (repository, error) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return repository{}, fmt.Errorf("read the make targets: %w", err)
	}
	repo := repository{root: root, targets: makeTargets(string(makefile)), docs: map[string]document{}}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && rel != "." && rel != ".github" || rel == "artifacts") {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		repo.docs[rel] = parse(string(text))
		return nil
	})
	if err != nil {
		return repository{}, fmt.Errorf("read the Markdown files: %w", err)
	}
	return repo, nil
}
