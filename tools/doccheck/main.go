// Command doccheck reads every Markdown file of the repository and fails where one points at something that is not
// there: a relative link, a heading in a linked file, a make target, a value of the chart, a metric, and in
// docs/reference a flag or a reason.
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

// readRepository parses the Makefile and every Markdown file below root.
func readRepository(root string) (repository, error) {
	folder, err := os.OpenRoot(root)
	if err != nil {
		return repository{}, err
	}
	repo := repository{files: folder.FS(), docs: map[string]document{}}
	makefile, err := fs.ReadFile(repo.files, "Makefile")
	if err != nil {
		return repository{}, fmt.Errorf("read the make targets: %w", err)
	}
	repo.targets = makeTargets(string(makefile))
	if repo.code, err = readCode(repo.files); err != nil {
		return repository{}, err
	}
	err = fs.WalkDir(repo.files, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return skipHidden(path)
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := fs.ReadFile(repo.files, path)
		repo.docs[path] = parse(string(text))
		return err
	})
	if err != nil {
		return repository{}, fmt.Errorf("read the Markdown files: %w", err)
	}
	return repo, nil
}

// skipHidden leaves out folders that are not the repository's own text.
func skipHidden(folder string) error {
	name := filepath.Base(folder)
	if name == "artifacts" || strings.HasPrefix(name, ".") && name != "." && name != ".github" {
		return fs.SkipDir
	}
	return nil
}
