// Package plugin builds the plugin `kubectl hpp` for all platforms that administrators have: an archive for each with
// the program and the license, their checksums, and the manifest by which krew installs them.
package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

// program is the folder below src/, and the name by which kubectl finds the plugin.
const program = "kubectl-hpp"

// Platforms are those that the plugin is built for.
func Platforms() (all []product.Platform) {
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			all = append(all, product.Platform{OS: system, Arch: arch})
		}
	}
	return all
}

// Options say what Build builds.
type Options struct {
	// Root is the repository's root folder, Output the folder that gets the files.
	Root, Output string
	// Version goes into the programs and the names of the archives.
	Version string
	// Compile is compile.Run. Tests have another.
	Compile func(context.Context, compile.Target) error
}

// archive is what krew has to know of one.
type archive struct {
	product.Platform
	Name, SHA256, Binary string
}

// binary is the program's name on a platform.
func binary(p product.Platform) string {
	if p.OS == "windows" {
		return program + ".exe"
	}
	return program
}

// Build writes the archives, checksums.txt and hpp.yaml. What the folder had of another build stays out of them.
func Build(ctx context.Context, o Options) error {
	scratch, err := os.MkdirTemp("", "hpp-plugin-")
	if err != nil {
		return fmt.Errorf("make a folder for the programs: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	if err := os.MkdirAll(o.Output, 0o755); err != nil {
		return fmt.Errorf("make the folder for the plugin: %w", err)
	}
	var built []archive
	var sums strings.Builder
	for _, p := range Platforms() { // one after the other: the compiler uses every core by itself
		a, err := buildOne(ctx, o, p, filepath.Join(scratch, p.OS, p.Arch, binary(p)))
		if err != nil {
			return err
		}
		built = append(built, a)
		fmt.Fprintf(&sums, "%s  %s\n", a.SHA256, a.Name)
	}
	manifest, err := krew(o.Version, built)
	return errors.Join(err,
		os.WriteFile(filepath.Join(o.Output, "checksums.txt"), []byte(sums.String()), 0o644),
		os.WriteFile(filepath.Join(o.Output, "hpp.yaml"), manifest, 0o644))
}

func buildOne(ctx context.Context, o Options, p product.Platform, output string) (archive, error) {
	target := product.Target(o.Root, "./src/"+program, o.Version, output)
	target.OS, target.Arch = p.OS, p.Arch
	if err := o.Compile(ctx, target); err != nil {
		return archive{}, err
	}
	a := archive{Platform: p, Binary: binary(p)}
	a.Name = fmt.Sprintf("%s_v%s_%s_%s.tar.gz", program, o.Version, p.OS, p.Arch)
	pack := tarball
	if p.OS == "windows" {
		a.Name, pack = strings.TrimSuffix(a.Name, ".tar.gz")+".zip", zipped
	}
	program, programErr := os.ReadFile(output)
	license, licenseErr := os.ReadFile(filepath.Join(o.Root, "LICENSE"))
	data, packErr := pack([]file{{a.Binary, 0o755, program}, {"LICENSE", 0o644, license}})
	if err := errors.Join(programErr, licenseErr, packErr); err != nil {
		return archive{}, fmt.Errorf("pack %s: %w", a.Name, err)
	}
	sum := sha256.Sum256(data)
	a.SHA256 = hex.EncodeToString(sum[:])
	return a, os.WriteFile(filepath.Join(o.Output, a.Name), data, 0o644)
}
