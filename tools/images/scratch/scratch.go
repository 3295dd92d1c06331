// Package scratch makes container images that contain nothing but the files
// they are given: no base image, no shell, no package manager. The same input
// gives the same digest on every machine, because times, owners and the order
// of the layer's entries are fixed here and never taken from the build host.
package scratch

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is one entry of the image. Exactly one of Source, Data, Link and Dir
// says what it is.
type File struct {
	// Path is where it lies in the image, absolute: "/driver".
	Path string
	// Source is a file on this machine whose content is taken.
	Source string
	// Data is the content itself.
	Data []byte
	// Link makes it a symbolic link to this target.
	Link string
	// Dir makes it an empty directory.
	Dir bool
	// Mode is the permission bits; 0 means 0755, which suits binaries.
	Mode int64
}

// Config is what a container made from the image starts with.
type Config struct {
	// OS and Arch as Go names them: "linux", "amd64".
	OS, Arch   string
	Entrypoint []string
	Env        []string
	User       string
	StopSignal string
	Labels     map[string]string
}

// epoch is the creation time of every image and every file in it.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

// Image returns an image with one layer that holds files. Parent directories
// are added. An error names the file that could not be read.
func Image(cfg Config, files ...File) (v1.Image, error) {
	layer, err := Layer(files...)
	if err != nil {
		return nil, err
	}
	return FromLayers(cfg, layer)
}

// FromLayers returns an image with the layers given, lowest first.
func FromLayers(cfg Config, layers ...v1.Layer) (v1.Image, error) {
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	img, err := mutate.AppendLayers(img, layers...)
	if err != nil {
		return nil, fmt.Errorf("put layers together: %w", err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the new image's configuration: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = cfg.OS, cfg.Arch
	file.Created = v1.Time{Time: epoch()}
	for i := range file.History {
		file.History[i] = v1.History{Created: v1.Time{Time: epoch()}, CreatedBy: "hostpath-provisioner tools/images"}
	}
	file.Config = v1.Config{
		Entrypoint: cfg.Entrypoint,
		Env:        cfg.Env,
		User:       cfg.User,
		StopSignal: cfg.StopSignal,
		Labels:     cfg.Labels,
	}
	return mutate.ConfigFile(img, file)
}

// Layer returns one gzip-compressed layer with the files, sorted by path.
func Layer(files ...File) (v1.Layer, error) {
	var buf bytes.Buffer
	if err := WriteTar(&buf, files...); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// WriteTar writes the files as an uncompressed archive with fixed times and
// owners. It reads every source as it goes, so memory stays small.
func WriteTar(out io.Writer, files ...File) error {
	w := tar.NewWriter(out)
	for _, f := range withParents(files) {
		if err := writeEntry(w, f); err != nil {
			return fmt.Errorf("put %s into the image: %w", f.Path, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("finish the layer: %w", err)
	}
	return nil
}

// withParents returns the files sorted by path, each once (the last one given
// wins), with every directory that leads to one of them.
func withParents(files []File) []File {
	byPath := map[string]File{}
	for _, f := range files {
		f.Path = path.Clean("/" + f.Path)
		byPath[f.Path] = f
		for dir := path.Dir(f.Path); dir != "/"; dir = path.Dir(dir) {
			if _, known := byPath[dir]; !known {
				byPath[dir] = File{Path: dir, Dir: true}
			}
		}
	}
	all := make([]File, 0, len(byPath))
	for _, f := range byPath {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

func writeEntry(w *tar.Writer, f File) error {
	hdr := &tar.Header{
		Name:    strings.TrimPrefix(f.Path, "/"),
		Mode:    cmp.Or(f.Mode, 0o755),
		ModTime: epoch(),
		Format:  tar.FormatPAX,
	}
	switch {
	case f.Dir:
		hdr.Typeflag, hdr.Name = tar.TypeDir, hdr.Name+"/"
		return w.WriteHeader(hdr)
	case f.Link != "":
		hdr.Typeflag, hdr.Linkname = tar.TypeSymlink, f.Link
		return w.WriteHeader(hdr)
	}
	hdr.Typeflag = tar.TypeReg
	content, size, err := open(f)
	if err != nil {
		return err
	}
	defer content.Close()
	hdr.Size = size
	if err := w.WriteHeader(hdr); err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	return err
}

// open returns the content of a regular file and its size in bytes.
func open(f File) (io.ReadCloser, int64, error) {
	if f.Source == "" {
		return io.NopCloser(bytes.NewReader(f.Data)), int64(len(f.Data)), nil
	}
	file, err := os.Open(f.Source)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}
