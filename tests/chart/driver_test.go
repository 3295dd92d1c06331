package chart

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/process"
)

// TestDriverTakesWhatTheChartWrites starts the built driver with the rendered flags and the rendered configuration
// file, in folders of the test's own. It serves, and its metrics are those that the alerts ask for.
func TestDriverTakesWhatTheChartWrites(t *testing.T) {
	t.Parallel()
	binary := process.Build(t, "./src/driver")
	for _, name := range []string{"default", "two pools", "no pools", "everything"} {
		values := renderings()[name]
		if name == "everything" {
			// Its first pool demands quota, which this machine's disk need not have.
			values.JSON = map[string]string{
				"storagePools": strings.ReplaceAll(everyPoolField, "\n", ""), "storageClasses": "[]",
			}
		}
		t.Run(name, func(t *testing.T) {
			wanted := []string{"hpp_build_info"}
			if name == "default" {
				for _, rule := range alerts(t) {
					wanted = append(wanted,
						regexp.MustCompile(`(kubevirt_)?hpp_\w+`).FindAllString(rule.Expr.StrVal, -1)...)
				}
				wanted = append(wanted,
					regexp.MustCompile(`hpp_pool_\w+`).FindAllString(strings.Join(queries(t), "\n"), -1)...)
				// The controller's have series only where there are nodes.
				wanted = slices.DeleteFunc(wanted,
					func(name string) bool { return strings.HasPrefix(name, "hpp_controller_") })
			}
			serve(t, binary, values, wanted)
		})
	}
}

// TestEveryPoolField: everyPoolField has what the schema has, which has what the driver reads.
func TestEveryPoolField(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(helmcli.ChartDir(t), "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var root schema
	var pools []map[string]any
	if err := errors.Join(json.Unmarshal(data, &root), json.Unmarshal([]byte(everyPoolField), &pools)); err != nil {
		t.Fatal(err)
	}
	allowed := root.Definitions["storagePool"].Properties
	trash, _ := pools[0]["trash"].(map[string]any)
	for where, options := range map[string]struct {
		allowed map[string]schema
		set     map[string]any
	}{"": {allowed, pools[0]}, "trash.": {allowed["trash"].Properties, trash}} {
		for name := range options.allowed {
			if _, set := options.set[name]; !set && name != "pvcTemplate" { // a claim that nobody here mounts
				t.Errorf("everyPoolField lacks %s%s", where, name)
			}
		}
	}
}

// everyPoolField is a pool with every field that the schema allows, at a value that this version can serve.
const everyPoolField = `[
{"name":"fast","path":"/srv/fast","scope":"node","nodeSelector":{"disk":"nvme"},"requireMount":true,"quota":"auto",
"reserve":10737418240,"overcommit":2.5,"maxVolumes":1000000,"inline":true,
"sharedAccess":true,
"trash":{"purgeWhenFull":true,"retention":"24h"}},
{"name":"slow","path":"/srv/slow","quota":"none","reserve":"7.5%","overcommit":0,"requireMount":false,
"trash":{"retention":"0s"}}]`

// serve runs the driver until it has all metrics that are wanted (it looks at its pools while it serves
// already), then stops it with SIGTERM.
func serve(t *testing.T, binary string, values helmcli.Values, wanted []string) {
	t.Helper()
	dir := t.TempDir()
	address := freeAddress(t)
	args := driverArguments(t, dir, address, values)
	metrics := "http://" + address + "/metrics"
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: writeCertificate(t, dir)}}}
	if secure := overTLS(t, dir, args); secure != "" {
		metrics = "https://" + secure + "/metrics"
	}
	runUntil(t, client, metrics, wanted, binary, args...)
}

// runUntil runs a driver until a page has all metrics that are wanted, then stops it with SIGTERM.
func runUntil(t *testing.T, client *http.Client, metrics string, wanted []string, binary string, args ...string) {
	t.Helper()
	p := process.Run(t, binary, []string{"NODE_NAME=node-1", "POD_NAME=csi-x7k2p", "POD_NAMESPACE=storage"}, args...)
	// A driver that never gets there fails this test and not the whole run.
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true,
		func(context.Context) (bool, error) {
			page := fetch(t, client, metrics)
			wanted = slices.DeleteFunc(wanted, func(name string) bool {
				return strings.Contains(page, "\n"+name+"{") || strings.Contains(page, "\n"+name+" ")
			})
			return len(wanted) == 0, p.Running()
		})
	if err != nil {
		t.Fatalf("/metrics lacks %v: %v\n%s", wanted, err, p.Log())
	}
	p.Stop(t)
	if err := p.Err(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, p.Log())
	}
}

// driverArguments are the rendered flags, with the host's folders and the port replaced by the test's.
func driverArguments(t *testing.T, dir, address string, values helmcli.Values) []string {
	t.Helper()
	objects := helmcli.Objects(t, helmsdk.Newest().MustTemplate(t, values))
	ds := daemonSet(t, values)
	config := helmcli.Find[*corev1.ConfigMap](t, objects, ds.Name).Data["config.yaml"]
	file := filepath.Join(dir, "config.yaml")
	folders := []string{
		filepath.Join(dir, "host", "var", "lib"), filepath.Join(dir, "host", "srv"),
		filepath.Join(dir, "kubelet"), filepath.Join(dir, "state"),
	}
	for _, folder := range folders {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	instead := map[string]string{
		"--endpoint": "unix://" + filepath.Join(dir, "csi.sock"), "--config": file,
		"--state-dir": filepath.Join(dir, "state"),
		"--host-root": filepath.Join(dir, "host"), "--kubelet-dir": filepath.Join(dir, "kubelet"),
		"--http-address": address, "--registration": "false",
	}
	args := []string{"--standalone", "--registration=false"}
	for _, argument := range container(t, ds.Spec.Template.Spec, "driver").Args {
		name, _, _ := strings.Cut(argument, "=")
		if name == "--controller" || name == "--daemon-set" { // tests/api/controller has the API that these need
			continue
		}
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

// overTLS replaces the address and the certificate of metrics over TLS, and gives the address,
// "" where the chart asks for none.
func overTLS(t *testing.T, dir string, args []string) (address string) {
	t.Helper()
	for i, argument := range args {
		switch name, _, _ := strings.Cut(argument, "="); name {
		case "--metrics-tls-address":
			address = freeAddress(t)
			args[i] = name + "=" + address
		case "--metrics-tls-cert-dir":
			args[i] = name + "=" + dir
		}
	}
	return address
}

// writeCertificate makes tls.crt and tls.key for 127.0.0.1 and gives what trusts them.
func writeCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	crt, crtErr := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	der, keyErr := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(crtErr, keyErr); err != nil {
		t.Fatal(err)
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: crt})
	for name, data := range map[string][]byte{
		"tls.crt": encoded, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(encoded)
	return trusted
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
func fetch(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
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
