package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/mirror"
	"github.com/hostpath-provisioner/hostpath-provisioner/tools/images/product"
)

// mirrorCommand copies what a release consists of into a registry of one's own, for clusters that reach no other.
func mirrorCommand() *cobra.Command {
	var root, list, to string
	cmd := &cobra.Command{
		Use:   "mirror --to REGISTRY[/PATH]",
		Short: "Copy the images of deploy/images.txt, and the chart, into another registry",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to == "" {
				return errors.New("--to is missing: give the registry to copy to, such as registry.example.com/hub")
			}
			if list == "" {
				list = filepath.Join(root, "deploy", "images.txt")
			}
			text, err := os.ReadFile(list)
			if err != nil {
				return fmt.Errorf("read the list of images: %w", err)
			}
			version, err := appVersion(root)
			if err != nil {
				return err
			}
			chart := product.Repository + "/charts/hostpath-provisioner:" + version
			return mirror.Copy(cmd.Context(), append(mirror.References(string(text)), chart), to, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&root, "root", "../..", "the repository's root folder")
	f.StringVar(&list, "images", "", "another list of images than deploy/images.txt, one in each line")
	f.StringVar(&to, "to", "", "registry to copy to, with an optional path; repositories keep theirs below it")
	return cmd
}
