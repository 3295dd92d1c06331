package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Beginnings of what a release's description says in this suite; the rest is a sum of its chart and its values.
const (
	describesDriver   = "e2e driver "
	describesOperator = "e2e operator "
)

// install makes the release what values say, and waits for its pods.
func (s *suite) install(ctx context.Context, values map[string]any) error {
	return s.installChart(ctx, filepath.Join(s.root, chartFolder), values)
}

// installChart does so with a chart.
func (s *suite) installChart(ctx context.Context, chart string, values map[string]any) error {
	return s.upgrade(ctx, chart, values, "watcher")
}

// upgrade calls Helm with one of its strategies of waiting, but not where the release has been made of both chart and
// values already.
func (s *suite) upgrade(ctx context.Context, chart string, values map[string]any, wait string) error {
	file, text, err := s.valuesFile(values)
	if err != nil {
		return err
	}
	description, err := describeRelease(chart, values, text)
	if err != nil {
		return err
	}
	if now, err := s.installed(ctx); err != nil || now == description {
		return err
	}
	return s.runHelm(ctx, "upgrade", "--install", release, chart, "--create-namespace", "--values", file,
		"--description", description, "--wait="+wait, "--timeout", "5m")
}

// valuesFile writes values to where whoever looks at a failed run finds them.
func (s *suite) valuesFile(values map[string]any) (file string, text []byte, err error) {
	file = filepath.Join(s.artifacts, "values.yaml")
	text, err = json.MarshalIndent(values, "", "  ") // JSON is YAML
	if err == nil {
		err = os.MkdirAll(s.artifacts, 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	return file, text, err
}

// describeRelease is what the description of a release says that is made of a chart and values.
func describeRelease(chart string, values map[string]any, text []byte) (string, error) {
	sum := sha256.New()
	_, _ = sum.Write(text) // a hash takes everything
	folder := os.DirFS(chart)
	err := fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(folder, path)
		_, _ = fmt.Fprintf(sum, "\n%s %d\n%s", path, len(content), content)
		return err
	})
	is := describesDriver
	if operator, _ := values["operator"].(map[string]any); operator["enabled"] == true {
		is = describesOperator
	}
	return fmt.Sprintf("%s%x", is, sum.Sum(nil)), err
}

// installed is the description of the release, or "" where there is none. One that Helm did not bring to its end is
// none that anybody described.
func (s *suite) installed(ctx context.Context) (description string, err error) {
	out, err := s.helmOutput(ctx, "history", release, "--max", "1", "--output", "json")
	if err != nil {
		if strings.Contains(err.Error(), "release: not found") {
			return "", nil
		}
		return "", err
	}
	var revisions []struct{ Status, Description string }
	if err := json.Unmarshal([]byte(out), &revisions); err != nil {
		return "", fmt.Errorf("read what helm history says: %w\n%s", err, out)
	}
	if len(revisions) == 0 {
		return "", nil
	}
	if revisions[0].Status != "deployed" {
		return "unfinished", nil
	}
	return revisions[0].Description, nil
}

// plain makes the release what most features expect.
func (s *suite) plain(ctx context.Context) error {
	now, err := s.installed(ctx)
	if err != nil {
		return err
	}
	if strings.HasPrefix(now, describesOperator) {
		if err := s.bare(ctx); err != nil {
			return err
		}
	}
	return s.install(ctx, s.values("info"))
}

// mustBePlain is plain, before the first step of a feature. A release that could not be made once is not tried again:
// that takes minutes for each of the features. It is not looked at again once features share it, which do not change
// it.
func (s *suite) mustBePlain(t *testing.T, shared bool) {
	t.Helper()
	s.releasing.Lock()
	defer s.releasing.Unlock()
	if s.unusable != nil {
		t.Fatalf("the release could not be made before: %v", s.unusable)
	}
	if s.shared {
		return
	}
	s.shared = shared
	ctx := s.inTime(t)
	if s.unusable = s.plain(ctx); s.unusable != nil {
		t.Logf("artifacts: %s", s.collect(ctx, t.Name(), "release", ""))
		t.Fatalf("make the release that the features expect: %v", s.unusable)
	}
}

// bare removes the release, whichever it is, with what an operator serves, and waits until its pods are gone and no
// kubelet goes on with its driver.
func (s *suite) bare(ctx context.Context) error {
	now, err := s.installed(ctx)
	if err != nil || now == "" {
		return err
	}
	if strings.HasPrefix(now, describesOperator) {
		if err := s.withoutResource(ctx); err != nil {
			return err
		}
	}
	if err := s.uninstall(ctx); err != nil {
		return err
	}
	return s.noDriver(ctx)
}

// noDriver waits until no pod of a driver is left, nor its registration on any node.
func (s *suite) noDriver(ctx context.Context) error {
	if _, err := s.cluster.Kubectl(ctx, nil, "wait", "pods", "--for", "delete", "--namespace", namespace, "--selector",
		componentLabel+" in ("+nodeComponent+","+controllerComponent+")", "--timeout",
		waitTimeout.String()); err != nil {
		return err
	}
	registration := "/var/lib/kubelet/plugins_registry/" + driverName + "-reg.sock"
	return s.onEveryNode(ctx, "n=0; while [ -e "+registration+" ]; do n=$((n+1)); [ $n -lt 300 ]; sleep 0.2; done")
}

func (s *suite) uninstall(ctx context.Context) error {
	return s.runHelm(ctx, "uninstall", release, "--wait", "--timeout", "5m")
}

func (s *suite) runHelm(ctx context.Context, args ...string) error {
	_, err := s.helmOutput(ctx, args...)
	return err
}

func (s *suite) helmOutput(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.helm, append(args, "--namespace", namespace)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("helm %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), nil
}
