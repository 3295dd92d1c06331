package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/compile"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/plugin"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

// destination is where images go: exactly one of the two is set.
type destination struct {
	push   string
	output string
}

func (d destination) validate() error {
	if (d.push == "") == (d.output == "") {
		return errors.New("give exactly one of --push REGISTRY/PREFIX and --output FOLDER")
	}
	return nil
}

func command() *cobra.Command {
	var (
		root, version, platforms string
		only                     []string
		to                       destination
	)
	cmd := &cobra.Command{
		Use:           "images",
		Short:         "Build the container images of this repository",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := product.ParsePlatforms(platforms)
			if err := errors.Join(err, to.validate(), checkNames(only)); err != nil {
				return err
			}
			if version == "" {
				if version, err = appVersion(root); err != nil {
					return err
				}
			}
			built, err := product.Build(cmd.Context(), product.Options{
				Root: root, Names: only, Version: version, Platforms: list,
			})
			if err != nil {
				return err
			}
			for _, b := range built {
				if err := publish(cmd, b, to, version); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&root, "root", "../..", "the repository's root folder")
	f.StringVar(&version, "version", "", "version put into the binaries and used as tag; empty: the chart's appVersion")
	f.StringVar(&platforms, "platforms", "linux/"+runtime.GOARCH, "comma separated list of OS/ARCH")
	f.StringSliceVar(&only, "only", nil, "build only these images: "+strings.Join(product.Names(), ", "))
	addDestination(cmd, &to)
	cmd.AddCommand(wrapCommand(), mirrorCommand(), pluginCommand())
	return cmd
}

// pluginCommand builds what is no image, by the same flags.
func pluginCommand() *cobra.Command {
	o := plugin.Options{Compile: compile.Run}
	cmd := &cobra.Command{
		Use: "plugin --output FOLDER", Short: "Build the plugin `kubectl hpp` for all platforms, and krew's manifest",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Version == "" {
				if o.Version, err = appVersion(o.Root); err != nil {
					return err
				}
			}
			return plugin.Build(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Root, "root", "../..", "the repository's root folder")
	f.StringVar(&o.Version, "version", "", "version of the plugin, without v; empty: the chart's appVersion")
	f.StringVar(&o.Output, "output", "../../artifacts/plugin", "folder for archives, checksums and manifest")
	return cmd
}

// appVersion reads the version that the chart's images have.
func appVersion(root string) (string, error) {
	file := filepath.Join(root, "charts", "hostpath-provisioner", "Chart.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the version from the chart (--version gives it otherwise): %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "appVersion:"); found {
			return strings.Trim(strings.TrimSpace(value), `"`), nil
		}
	}
	return "", fmt.Errorf("%s has no appVersion: give --version", file)
}

func addDestination(cmd *cobra.Command, to *destination) {
	cmd.Flags().StringVar(&to.push, "push", "", "push to this prefix, such as "+product.Repository)
	cmd.Flags().StringVar(&to.output, "output", "", "write OCI layouts below this folder instead of pushing")
}

func checkNames(names []string) error {
	for _, n := range names {
		if !slices.Contains(product.Names(), n) {
			return fmt.Errorf("image %q is not one of %s", n, strings.Join(product.Names(), ", "))
		}
	}
	return nil
}

// wrapCommand puts a binary that was built elsewhere into an image, for the
// sidecars and peers that tests build from source.
func wrapCommand() *cobra.Command {
	var (
		binary, name, version, platform string
		to                              destination
	)
	cmd := &cobra.Command{
		Use:   "wrap --binary FILE --name NAME",
		Short: "Put one prebuilt static binary into an image of its own",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := product.ParsePlatforms(platform)
			if err := errors.Join(err, to.validate()); err != nil {
				return err
			}
			img, err := product.Wrap(list[0], binary, "/"+path.Base(name), nil)
			if err != nil {
				return err
			}
			b := product.Built{Name: name, Images: []product.PlatformImage{{Platform: list[0], Image: img}}}
			return publish(cmd, b, to, version)
		},
	}
	f := cmd.Flags()
	f.StringVar(&binary, "binary", "", "the binary to put into the image")
	f.StringVar(&name, "name", "",
		"name of the image below the prefix, such as sig-storage/csi-provisioner; its last part is the entrypoint")
	f.StringVar(&version, "version", "latest", "tag of the image")
	f.StringVar(&platform, "platform", "linux/"+runtime.GOARCH, "OS/ARCH of the binary")
	addDestination(cmd, &to)
	for _, required := range []string{"binary", "name"} {
		if err := cmd.MarkFlagRequired(required); err != nil {
			panic(err) // the flag of that name is defined three lines above
		}
	}
	return cmd
}

// publish prints one line for each image: its name with tag, and its digest.
func publish(cmd *cobra.Command, b product.Built, to destination, version string) error {
	if to.output != "" {
		digest, err := product.Save(b, to.output, version)
		if err != nil {
			return err
		}
		return report(cmd.OutOrStdout(), path.Join(to.output, b.Name)+":"+version, digest.String())
	}
	reference := strings.TrimSuffix(to.push, "/") + "/" + b.Name + ":" + version
	digest, err := product.Push(cmd.Context(), b, reference)
	if err != nil {
		return err
	}
	return report(cmd.OutOrStdout(), reference, digest.String())
}

func report(w io.Writer, reference, digest string) error {
	_, err := fmt.Fprintf(w, "%s@%s\n", reference, digest)
	return err
}
