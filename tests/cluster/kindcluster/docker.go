package kindcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/log"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/fromsource"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/dockercli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/cluster/internal/registry"
)

// prepareDocker makes the folder of the cluster and what kind needs to start
// nodes with Docker.
func (c *Cluster) prepareDocker(ctx context.Context) error {
	if err := os.MkdirAll(c.folder(), 0o755); err != nil {
		return fmt.Errorf("make a folder for cluster %s: %w", c.name, err)
	}
	if err := fromsource.PrepareDocker(c.folder("bin"), c.steps.Note); err != nil {
		return err
	}
	c.provider = cluster.NewProvider(cluster.ProviderWithDocker())
	return ctx.Err()
}

// withKindEnv runs do with the variables that kind takes settings from which
// its configuration file does not have, and puts back what was there.
func (c *Cluster) withKindEnv(image fromsource.Image, do func() error) error {
	// A network of its own for each cluster, so that removing one cluster
	// removes all of it.
	env := map[string]string{"KIND_EXPERIMENTAL_DOCKER_NETWORK": c.network()}
	maps.Copy(env, image.Env)
	if noProxy := addNoProxy(os.Getenv, registry.Container(c.name)); noProxy != "" {
		env["NO_PROXY"], env["no_proxy"] = noProxy, noProxy
	}
	restore, err := setEnv(env)
	if err != nil {
		return err
	}
	return errors.Join(do(), restore())
}

// addNoProxy returns the value of NO_PROXY with one more host, or "" where no
// proxy is set: kind gives these settings to the nodes, and the registry next
// to them must not be asked for through a proxy.
func addNoProxy(getenv func(string) string, host string) string {
	proxied := false
	for _, key := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		proxied = proxied || getenv(key) != ""
	}
	if !proxied {
		return ""
	}
	return strings.TrimPrefix(cmp.Or(getenv("NO_PROXY"), getenv("no_proxy"))+","+host, ",")
}

// setEnv sets variables of this process; the function it returns puts back
// what was there.
func setEnv(env map[string]string) (restore func() error, err error) {
	var undo []func() error
	restore = func() error {
		var errs []error
		for _, u := range undo {
			errs = append(errs, u())
		}
		return errors.Join(errs...)
	}
	for key, value := range env {
		before, was := os.LookupEnv(key)
		if err := os.Setenv(key, value); err != nil {
			return nil, errors.Join(err, restore())
		}
		undo = append(undo, func() error {
			if was {
				return os.Setenv(key, before)
			}
			return os.Unsetenv(key)
		})
	}
	return restore, nil
}

// Delete removes everything that belongs to a cluster, whether all of it is
// there or not: nodes, registry, network, access files and the stand-in. What
// the cache holds for the next cluster stays.
func Delete(ctx context.Context, name string) error {
	c, err := open(ctx, name)
	if err != nil {
		return err
	}
	var errs []error
	// Twice, because access may have been written to both places.
	for _, kubeconfig := range []string{c.Kubeconfig(), ""} {
		if err := c.provider.Delete(name, kubeconfig); err != nil {
			errs = append(errs, fmt.Errorf("remove kind cluster %s: %w", name, err))
		}
	}
	errs = append(errs, c.removeRegistry(ctx))
	if have, err := dockercli.HasNetwork(ctx, c.network()); have || err != nil {
		errs = append(errs, err, dockercli.Remove(ctx, "network", c.network()))
	}
	return errors.Join(append(errs, removeEmptyKubeconfig(), os.RemoveAll(c.folder()))...)
}

// removeEmptyKubeconfig removes the user's kubeconfig when nothing is left in
// it but its first two lines: then kind made it for this cluster.
func removeEmptyKubeconfig() error {
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("find the user's kubeconfig: %w", err)
		}
		path = filepath.Join(home, ".kube", "config")
	}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // also when KUBECONFIG lists several files
	}
	if err != nil {
		return fmt.Errorf("look whether the kubeconfig is empty: %w", err)
	}
	if strings.TrimSpace(string(content)) != "apiVersion: v1\nkind: Config" {
		return nil
	}
	return os.Remove(path)
}

// logger passes on what kind is doing, without its hints for kind's own users.
type logger struct{ report func(string) }

// Warn and Error are both things to look at; kind returns errors beside them.
func (l *logger) Warn(message string) {
	if !strings.HasPrefix(message, "WARNING: Overriding docker network") &&
		!strings.HasPrefix(message, "WARNING: Here be dragons") {
		l.report(message)
	}
}

// Warnf is Warn with a format.
func (l *logger) Warnf(format string, args ...any) { l.Warn(fmt.Sprintf(format, args...)) }

// Error passes message on.
func (l *logger) Error(message string) { l.report(message) }

// Errorf is Error with a format.
func (l *logger) Errorf(format string, args ...any) { l.Error(fmt.Sprintf(format, args...)) }

// V returns a logger for messages of that level; only level 0 is for people.
func (l *logger) V(level log.Level) log.InfoLogger { return infoLogger{logger: l, level: level} }

type infoLogger struct {
	logger *logger
	level  log.Level
}

// Info passes message on.
func (l infoLogger) Info(message string) {
	if l.Enabled() {
		l.logger.report(strings.TrimSpace(message))
	}
}

// Infof is Info with a format.
func (l infoLogger) Infof(format string, args ...any) { l.Info(fmt.Sprintf(format, args...)) }

// Enabled reports whether the level is shown.
func (l infoLogger) Enabled() bool { return l.level == 0 }
