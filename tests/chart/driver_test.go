package chart

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// TestDriverTakesWhatTheChartWrites starts the built driver with the rendered flags and the rendered configuration file, in
// folders of the test's own. It serves, and its metrics are those that the alerts ask for.
func TestDriverTakesWhatTheChartWrites(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "driver")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./src/driver")
	build.Dir = helmcli.Root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	for _, name := range []string{"default", "two pools", "no pools", "everything"} {
		values := renderings()[name]
		if name == "everything" {
			// No backend of this version enforces a size, and the driver says so about a pool that demands it.
			values.JSON = map[string]string{"storagePools": strings.ReplaceAll(everyPoolField, "\n", ""), "storageClasses": "[]"}
		}
		t.Run(name, func(t *testing.T) {
			wanted := []string{"hpp_build_info"}
			if name == "default" {
				for _, rule := range alerts(t) {
					wanted = append(wanted, regexp.MustCompile(`hpp_\w+`).FindAllString(rule.Expr.StrVal, -1)...)
				}
			}
			serve(t, binary, values, wanted)
		})
	}
}

// everyPoolField is a pool with every field that the schema allows, at a value that this version can serve.
const everyPoolField = `[{"name":"fast","path":"/srv/fast","scope":"node","nodeSelector":{"disk":"nvme"},"requireMount":true,
"quota":"auto","reserve":10737418240,"overcommit":2.5,"maxVolumes":1000000,"inline":true,"trash":{"retention":"24h"}},
{"name":"slow","path":"/srv/slow","quota":"none","reserve":"7.5%","overcommit":0,"requireMount":false,"trash":{"retention":"0s"}}]`

// serve runs the driver until it has all metrics that are wanted (it looks at its pools while it serves already), then stops it
// with SIGTERM.
func serve(t *testing.T, binary string, values helmcli.Values, wanted []string) {
	t.Helper()
	dir := t.TempDir()
	address := freeAddress(t)
	// Only so that a driver that never gets there fails this test and not the whole run.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, binary, driverArguments(t, dir, address, values)...)
	command.Env = append(os.Environ(), "NODE_NAME=node-1")
	var log bytes.Buffer
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- command.Wait() }()
	for len(wanted) > 0 {
		select {
		case err := <-exited:
			t.Fatalf("%s: ended (%v) before /metrics had %v\n%s", command, err, wanted, log.String())
		case <-time.After(50 * time.Millisecond):
			metrics := fetch(t, "http://"+address+"/metrics")
			wanted = slices.DeleteFunc(wanted, func(name string) bool {
				return strings.Contains(metrics, "\n"+name+"{") || strings.Contains(metrics, "\n"+name+" ")
			})
		}
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-exited; err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, log.String())
	}
}

// driverArguments are the rendered flags, with the host's folders and the port replaced by the test's.
func driverArguments(t *testing.T, dir, address string, values helmcli.Values) []string {
	t.Helper()
	objects := helmcli.Objects(t, helmcli.Newest(t).MustTemplate(t, values))
	ds := daemonSet(t, values)
	config := helmcli.Find[*corev1.ConfigMap](t, objects, ds.Name).Data["config.yaml"]
	file := filepath.Join(dir, "config.yaml")
	folders := []string{filepath.Join(dir, "host", "var", "lib"), filepath.Join(dir, "host", "srv"), filepath.Join(dir, "kubelet"), filepath.Join(dir, "state")}
	for _, folder := range folders {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	instead := map[string]string{
		"--endpoint": "unix://" + filepath.Join(dir, "csi.sock"), "--config": file, "--state-dir": filepath.Join(dir, "state"),
		"--host-root": filepath.Join(dir, "host"), "--kubelet-dir": filepath.Join(dir, "kubelet"), "--http-address": address,
		"--registration": "false",
	}
	args := []string{"--standalone", "--registration=false"}
	for _, argument := range container(t, ds.Spec.Template.Spec, "driver").Args {
		name, _, _ := strings.Cut(argument, "=")
		if value, ok := instead[name]; ok {
			argument = name + "=" + value
			delete(instead, name)
		}
		args = append(args, argument)
	}
	delete(instead, "--registration")
	if len(instead) > 0 {
		t.Fatalf("the chart does not set %v", instead)
	}
	return args
}

// freeAddress is a port of the loopback that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// fetch gives the body of a page, "" while nobody answers.
func fetch(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}
