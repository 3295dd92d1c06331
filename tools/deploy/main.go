// Command deploy writes the chart as plain manifests, for those who install without Helm: the operator, its webhook,
// and samples of StorageClasses. What no value of the chart decides (the namespace and the custom resources) lies
// beside them and is written by hand.
//
//	go -C tools run ./deploy -helm PATH -chart ../charts/hostpath-provisioner -out ../deploy
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// The names of the release and of its namespace. A release of the namespace's name would give objects the names that
// kubevirt's operator and its driver have, with other selectors: `kubectl apply` would fail halfway.
const release, namespace = "hpp", "hostpath-provisioner"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("deploy", flag.ContinueOnError)
	helm := flags.String("helm", "", "the helm binary")
	chart := flags.String("chart", "../charts/hostpath-provisioner", "folder of the chart")
	out := flags.String("out", "../deploy", "folder to write into")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *helm == "" {
		return errors.New("-helm is needed: the path that `go -C tools run ./install helm4` prints")
	}
	for _, file := range files() {
		text, err := write(ctx, *helm, *chart, file)
		if err != nil {
			return fmt.Errorf("%s: %w", file.name, err)
		}
		if err := os.WriteFile(filepath.Join(*out, file.name), text, 0o644); err != nil {
			return err
		}
	}
	data, err := os.ReadFile(filepath.Join(*chart, "Chart.yaml"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*out, "images.txt"), []byte(images(string(data))), 0o644)
}

// images are those that Chart.yaml tells Artifact Hub of, one in each line; a test compares them with what is rendered.
func images(chart string) string {
	var list strings.Builder
	for line := range strings.Lines(chart) {
		if image, found := strings.CutPrefix(strings.TrimSpace(line), "image: "); found {
			list.WriteString(image + "\n")
		}
	}
	return list.String()
}

// write is the text of a manifest. One without an object is an error: the chart has changed and files() has not.
func write(ctx context.Context, helm, chart string, file file) ([]byte, error) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "# %s\n# Written by `make generate` from charts/hostpath-provisioner; change it there.\n",
		file.title)
	if file.source != "" {
		data, err := os.ReadFile(filepath.Join(chart, file.source))
		text.Write(data)
		return text.Bytes(), err
	}
	manifest, err := template(ctx, helm, chart, file.args)
	if err != nil {
		return nil, err
	}
	found := 0
	for _, document := range documents(manifest) {
		if file.keep(document) {
			text.WriteString("---\n" + clean(document, file.sample))
			found++
		}
	}
	if found == 0 {
		return nil, errors.New("the chart renders none of its objects")
	}
	return text.Bytes(), nil
}

// kubeVersion is what Helm takes the cluster for; nothing in these manifests depends on it.
const kubeVersion = "v1.37.1"

// template renders the chart as for a release of the fixed name.
func template(ctx context.Context, helm, chart string, args []string) (string, error) {
	args = append(
		[]string{"template", release, chart, "--namespace", namespace, "--kube-version", kubeVersion, "--no-hooks"},
		args...,
	)
	command := exec.CommandContext(ctx, helm, args...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	manifest, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", command, err, stderr.String())
	}
	return string(manifest), nil
}
