package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmsdk"
)

// refusal is a set of values that must not render, and what the message has to say.
type refusal struct {
	set, json map[string]string
	want      []string
}

func expectRefusals(t *testing.T, helm helmsdk.Helm, refusals map[string]refusal) {
	t.Helper()
	for name, test := range refusals {
		_, err := helm.Template(t, helmcli.Values{Set: test.set, JSON: test.json})
		if err == nil {
			t.Errorf("%s: rendered, want an error", name)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error does not say %q:\n%v", name, want, err)
			}
		}
	}
}

func set(key, value string) map[string]string { return map[string]string{key: value} }

// TestWrongValuesAreRefused by the schema, with the place of the mistake.
func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	pools := func(pool string) map[string]string { return set("storagePools", `[`+pool+`]`) }
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		expectRefusals(t, helm, map[string]refusal{
			"key without a value": {json: set("rbac.create", "null"), want: []string{"/rbac", "'create'"}},
			"network policy without a port": {
				json: set("networkPolicies.apiServerPorts", "null"), want: []string{"'apiServerPorts'"},
			},
			"label with a space": {
				json: pools(`{"name":"local","path":"/p","nodeSelector":{"disk type":"ssd"}}`),
				want: []string{"/storagePools/0/nodeSelector", "disk type"},
			},
			"label with a comma": {
				json: pools(`{"name":"local","path":"/p","nodeSelector":{"disktype":"ssd,nvme"}}`),
				want: []string{"/storagePools/0/nodeSelector/disktype"},
			},
			"unknown key": {set: set("storagePool", "x"), want: []string{"storagePool"}},
			"unknown key in a pool": {
				json: pools(`{"name":"local","path":"/p","size":"1Gi"}`), want: []string{"/storagePools/0", "'size'"},
			},
			"unknown key in a class": {
				json: set("storageClasses", `[{"name":"a","pool":"local"}]`),
				want: []string{"/storageClasses/0", "'pool'"},
			},
			"pool without path": {json: pools(`{"name":"local"}`), want: []string{"/storagePools/0", "'path'"}},
			"pool at /": {
				json: pools(`{"name":"local","path":"/"}`), want: []string{`storagePools[0] "local": its path is "/"`},
			},
			"paths of several disks": {
				json: pools(`{"name":"local","path":"/mnt/nvme*"}`),
				want: []string{`storagePools[0] "local": its path "/mnt/nvme*" would be taken as it is written`},
			},
			"state that a boot empties": {
				set:  set("driver.stateDir", "/run/hpp"),
				want: []string{"driver.stateDir: /run/hpp is or lies in /run, which a boot empties"},
			},
			"five bytes of reserve": {
				json: pools(`{"name":"local","path":"/p","reserve":5}`),
				want: []string{`storagePools[0] "local": its reserve is 5 bytes; write 5%`},
			},
			"a disk's mount options": {
				json: set("storageClasses", `[{"name":"a","storagePool":"local","mountOptions":["noatime,nofail"]}]`),
				want: []string{`storageClasses[0] "a": the driver refuses the mount option "noatime,nofail"`},
			},
			"path that only the system has": {
				json: map[string]string{"legacyProvisioner": `{"enabled":true,"path":"/etc/x"}`},
				want: []string{"legacyProvisioner.path /etc/x is or lies in /etc"},
			},
			"relative pool": {
				json: pools(`{"name":"local","path":"srv/data"}`),
				want: []string{`its path is "srv/data"; it takes an absolute one`},
			},
			"path that is not clean": {
				json: pools(`{"name":"local","path":"/srv/../etc"}`), want: []string{`its path is "/srv/../etc"`},
			},
			"path with a last slash": {
				json: pools(`{"name":"local","path":"/srv/"}`), want: []string{`its path is "/srv/"`},
			},
			"pool name in capitals": {
				json: pools(`{"name":"Local","path":"/p"}`), want: []string{"/storagePools/0/name"},
			},
			"negative reserve": {
				json: pools(`{"name":"local","path":"/p","reserve":-1}`), want: []string{"/storagePools/0/reserve"},
			},
			"reserve of 100%": {
				json: pools(`{"name":"local","path":"/p","reserve":"100%"}`),
				want: []string{`its reserve is "100%"; it takes bytes`},
			},
			"retention in days": {
				json: pools(`{"name":"local","path":"/p","trash":{"retention":"7d"}}`),
				want: []string{`its trash.retention is "7d"; it takes hours`},
			},
			"number as parameter": {
				json: set("storageClasses", `[{"name":"a","parameters":{"directoryMode":493}}]`),
				want: []string{"/storageClasses/0/parameters/directoryMode", "string"},
			},
			"topology of no node": {
				json: set("storageClasses",
					`[{"name":"a","allowedTopologies":[{"matchLabelExpressions":[{"key":"k","values":[]}]}]}]`),
				want: []string{"/storageClasses/0/allowedTopologies/0/matchLabelExpressions/0/values"},
			},
			"tag that became a number": {
				json: set("driver.image.tag", "1.1"), want: []string{"/driver/image/tag", "string"},
			},
			"digest without algorithm": {
				set: set("driver.image.digest", "abc"), want: []string{"/driver/image/digest"},
			},
			"log level":    {set: set("driver.logLevel", "verbose"), want: []string{"/driver/logLevel", "debug"}},
			"port as text": {json: set("driver.httpPort", `"9898"`), want: []string{"/driver/httpPort", "integer"}},
			"port 0":       {json: set("driver.httpPort", "0"), want: []string{"/driver/httpPort"}},
			"path of several lines": {
				json: map[string]string{"legacyProvisioner.path": `"/srv/a\n        - name: b"`},
				want: []string{"/legacyProvisioner/path"},
			},
			"relative kubelet dir":     {set: set("kubeletDir", "kubelet"), want: []string{"/kubeletDir"}},
			"driver name with a slash": {set: set("driver.name", "a/b"), want: []string{"/driver/name"}},
			"topology key with no domain": {
				set: set("driver.topologyKey", "node"), want: []string{"/driver/topologyKey"},
			},
			"openshift: maybe": {set: set("openshift", "maybe"), want: []string{"/openshift"}},
		})
	})
}

// TestImpossibleCombinationsAreRefused: one sentence each, from templates/_problems.tpl.
func TestImpossibleCombinationsAreRefused(t *testing.T) {
	t.Parallel()
	const one = `{"name":"one","path":"/srv/one"}`
	both := func(pools, classes string) map[string]string {
		return map[string]string{"storagePools": "[" + pools + "]", "storageClasses": "[" + classes + "]"}
	}
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		expectRefusals(t, helm, map[string]refusal{
			"two pools of one name": {json: both(one+`,{"name":"one","path":"/srv/two"}`, ""), want: []string{
				`storagePools[1] "one": there is another pool of that name; names must be unique.`,
			}},
			"nested pools": {json: both(one+`,{"name":"two","path":"/srv/one/two"}`, ""), want: []string{
				`storagePools[1] "two": its path /srv/one/two and that of storagePools[0] "one" (/srv/one) lie ` +
					`inside each other`,
			}},
			"two pools at one path": {json: both(one+`,{"name":"two","path":"/srv/one"}`, ""), want: []string{
				`storagePools[1] "two": its path /srv/one and that of storagePools[0] "one" (/srv/one) lie ` +
					`inside each other`,
			}},
			"pool around stateDir": {
				json: both(`{"name":"one","path":"/var/lib/hostpath-provisioner-state/x"}`, ""),
				want: []string{
					`storagePools[0] "one": its path /var/lib/hostpath-provisioner-state/x and that of driver.stateDir`,
				},
			},
			"pool inside kubeletDir": {json: both(`{"name":"one","path":"/var/lib/kubelet/pool"}`, ""), want: []string{
				`storagePools[0] "one": its path /var/lib/kubelet/pool and that of kubeletDir`,
			}},
			"what no node knows alone of a shared pool": {
				json: both(
					`{"name":"one","path":"/srv/one","scope":"shared","quota":"auto","overcommit":2,"maxVolumes":3,`+
						`"inline":true}`, ""),
				want: []string{
					`storagePools[0] "one": a pool with scope shared has no overcommit; leave it out`,
					`storagePools[0] "one": a pool with scope shared has no maxVolumes; leave it out`,
					`storagePools[0] "one": a pool with scope shared has no inline; leave it out`,
					`storagePools[0] "one": a pool with scope shared has no quota; leave it out, or say none.`,
				},
			},
			"sharedAccess where all nodes share": {
				json: both(`{"name":"one","path":"/srv/one","scope":"shared","sharedAccess":true}`, ""), want: []string{
					`storagePools[0] "one": scope shared allows ReadWriteMany on all nodes; remove sharedAccess.`,
				},
			},
			"pvcTemplate": {
				json: both(`{"name":"one","path":"/srv/one","pvcTemplate":{"accessModes":["ReadWriteOnce"]}}`, ""),
				want: []string{
					`storagePools[0] "one": pvcTemplate needs the operator, which makes the claims; set ` +
						`operator.enabled`,
				},
			},
			"mounts without the operator": {
				json: set("mounter.mounts", `[{"pool":"a","path":"/srv/a","node":"n","claim":"c","block":false}]`),
				want: []string{`mounter.mounts: it is the operator's to set`},
			},
			"class of a pool that is not there": {json: both(one, `{"name":"a","storagePool":"two"}`), want: []string{
				`storageClasses[0] "a": there is no pool "two" in storagePools (one); set storageClasses together ` +
					`with storagePools.`,
			}},
			"default class without its pool": {json: set("storagePools", "["+one+"]"), want: []string{
				`storageClasses[0] "hostpath-local": there is no pool "local" in storagePools (one)`,
			}},
			"class without a pool among two": {
				json: both(one+`,{"name":"two","path":"/srv/two"}`, `{"name":"a"}`),
				want: []string{
					`storageClasses[0] "a": storagePool is needed because there are 2 pools.`,
				},
			},
			"pool given twice": {
				json: both(one, `{"name":"a","storagePool":"one","parameters":{"storagePool":"one"}}`),
				want: []string{
					`storageClasses[0] "a": the pool is given twice; remove parameters.storagePool.`,
				},
			},
			"two classes of one name": {json: both(one, `{"name":"a"},{"name":"a"}`), want: []string{
				`storageClasses[1] "a": there is another class of that name; names must be unique.`,
			}},
			"two default classes": {
				json: both(one, `{"name":"a","default":true},{"name":"b","default":true}`),
				want: []string{
					`storageClasses: a, b are all marked as the cluster's default class; mark one.`,
				},
			},
			"snapshot class twice": {
				json: set("snapshotClasses", `[{"name":"a"},{"name":"a"}]`),
				want: []string{`snapshotClasses[1] "a": there is another class of that name; names must be unique.`},
			},
			"two default snapshot classes": {
				json: set("snapshotClasses", `[{"name":"a","default":true},{"name":"b","default":true}]`),
				want: []string{`snapshotClasses: a, b are all marked as the driver's default class; mark one.`},
			},
			"one port twice, csi-snapshotter's": {
				json: map[string]string{"snapshots": "true", "sidecars.snapshotter.httpPort": "9894"},
				want: []string{`sidecars.provisioner.httpPort and sidecars.snapshotter.httpPort are both 9894`},
			},
			"unknown parameter": {json: both(one, `{"name":"a","parameters":{"directorymode":"0700"}}`), want: []string{
				`storageClasses[0] "a": the driver refuses the parameter "directorymode"; it knows ` +
					`storagePool, directoryMode`,
			}},
			"parameters that the driver refuses": {json: both(one, `{"name":"a","parameters":{"directoryMode":"0999",`+
				`"onDelete":"keep","restoreTo":"there","uid":"root"}}`), want: []string{
				`"a": parameter directoryMode is "0999"; it takes octal permissions such as 0750.`,
				`"a": parameter onDelete is "keep"; it takes trash, purge or retain.`,
				`"a": parameter restoreTo is "there"; it takes pod or source.`,
				`"a": parameter uid is "root"; it takes a whole number.`,
			}},
			"a workload with nothing in it": {json: set("driver", "null"), want: []string{"missing property 'driver'"}},
			"a registry with a scheme": {
				json: set("global.imageRegistry", `"https://registry.example.com"`), want: []string{"imageRegistry"},
			},
			"another key of nodes": {json: both(one, `{"name":"a","allowedTopologies":[{"matchLabelExpressions":`+
				`[{"key":"kubernetes.io/hostname","values":["n"]}]}]}`), want: []string{
				`storageClasses[0] "a": allowedTopologies names "kubernetes.io/hostname", and the driver knows nodes ` +
					`by "topology.hostpath.csi/node" alone (driver.topologyKey)`,
			}},
			"one port twice, over TLS": {json: map[string]string{
				"sidecars.resizer.httpPort": "9897", "driver.metricsTLS.enabled": "true",
				"driver.metricsTLS.secretName": `"mine"`,
			}, want: []string{`driver.metricsTLS.port and sidecars.resizer.httpPort are both 9897; all containers ` +
				`of a pod share`}},
			"one port twice, of the sidecars": {json: set("sidecars.resizer.httpPort", "9894"), want: []string{
				`sidecars.provisioner.httpPort and sidecars.resizer.httpPort are both 9894; all containers ` +
					`of a pod share`,
			}},
			"one port twice, the tunnel's": {json: set("controller.port", "9898"), want: []string{
				`driver.httpPort and controller.port are both 9898; all containers of a pod share its ports.`,
			}},
			"one port twice": {json: set("sidecars.provisioner.httpPort", "9898"), want: []string{
				`driver.httpPort and sidecars.provisioner.httpPort are both 9898; all containers of a pod ` +
					`share its ports.`,
			}},
			"one port twice, by the liveness probe": {
				json: map[string]string{"driver.httpPort": "9899", "sidecars.livenessProbe.enabled": "true"},
				want: []string{
					`driver.httpPort and sidecars.livenessProbe.httpPort are both 9899`,
				},
			},
			"surge": {json: set("driver.updateStrategy.rollingUpdate.maxSurge", "1"), want: []string{
				`driver.updateStrategy.rollingUpdate.maxSurge: the kubelet accepts one driver per name`,
			}},
			"socket path too long": {set: set("kubeletDir", "/"+strings.Repeat("k", 80)), want: []string{
				`kubeletDir and driver.name: the socket's path`, `bytes, and Linux allows 107`,
			}},
			"two monitors": {
				set: map[string]string{
					"monitoring.podMonitor.enabled": "true", "monitoring.serviceMonitor.enabled": "true",
				},
				want: []string{
					`monitoring: podMonitor and serviceMonitor would scrape every pod twice; enable one.`,
				},
			},
			"several problems at once": {
				json: both(one+`,`+one, `{"name":"a","parameters":{"size":"1"}}`),
				want: []string{
					"names must be unique", "lie inside each other", `the parameter "size"`,
				},
			},
		})
	})
}

// sayTheSame reports whether each line of one message is in the other. Both Helms say what a schema refuses in no
// order.
func sayTheSame(there, here string) bool {
	for line := range strings.Lines(here) {
		if !strings.Contains(there, strings.TrimSpace(line)) {
			return false
		}
	}
	return true
}

// TestCommandsRefuseWithTheSameWords: what the other tests read in process is what a user of each command sees, whether
// the schema, a sentence of the templates, a file or a flag is wrong.
func TestCommandsRefuseWithTheSameWords(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("storagePools: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sdks := helmsdk.Versions()
	helmcli.Each(t, func(t *testing.T, helm helmcli.Helm) {
		sdk := sdks[slices.IndexFunc(sdks, func(sdk helmsdk.Helm) bool { return sdk.Version == helm.Version })]
		for name, values := range map[string]helmcli.Values{
			"unknown key": {Set: set("storagePool", "x")},
			"unknown keys": {
				Set: map[string]string{"typo": "x", "driver.typo": "x", "operator.webhook.typo": "x"},
			},
			"pool without path":  {JSON: set("storagePools", `[{"name":"local"}]`)},
			"not a number":       {JSON: set("driver.httpPort", `"9898"`)},
			"not one of a list":  {Set: set("driver.logLevel", "verbose")},
			"not JSON":           {JSON: set("storagePools", `[{`)},
			"no YAML":            {Files: []string{file}},
			"no file":            {Files: []string{file + ".missing"}},
			"class without pool": {JSON: set("storageClasses", `[{"name":"a","storagePool":"two"}]`)},
			"several sentences": {JSON: map[string]string{
				"storagePools":   `[{"name":"one","path":"/srv/one"},{"name":"one","path":"/srv/one"}]`,
				"storageClasses": `[{"name":"a","parameters":{"size":"1"}}]`,
			}},
		} {
			_, here := sdk.Template(t, values)
			_, there := helm.Template(t, values)
			if here == nil || there == nil || !sayTheSame(there.Error(), here.Error()) {
				t.Errorf("%s: the command says\n%v\nand in process it is\n%v", name, there, here)
			}
		}
	})
}

// TestLegacyPoolNeedsNoName: a class without storagePool means the pool "legacy" where there is one.
func TestLegacyPoolNeedsNoName(t *testing.T) {
	t.Parallel()
	helmsdk.Newest().MustTemplate(t, helmcli.Values{JSON: map[string]string{
		"storagePools":   `[{"name":"legacy","path":"/srv/one"},{"name":"two","path":"/srv/two"}]`,
		"storageClasses": `[{"name":"a","parameters":{"overlayCSI":"true"}}]`,
	}})
}

// TestTyposAreRefusedAtEveryLevel: an unknown key in each map of values.yaml, but for the open ones.
func TestTyposAreRefusedAtEveryLevel(t *testing.T) {
	t.Parallel()
	open := openMaps()
	var closed []string
	for _, path := range objectPaths(defaults(t), "") {
		if !slices.ContainsFunc(
			open, func(prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+".") },
		) {
			closed = append(closed, path)
		}
	}
	if len(closed) < 15 {
		t.Fatalf("only %d closed maps found: %v", len(closed), closed)
	}
	helmsdk.Each(t, func(t *testing.T, helm helmsdk.Helm) {
		// One rendering for all: the schema reports every unknown key.
		values := map[string]string{"typo": "x"}
		for _, path := range closed {
			values[path+".typo"] = "x"
		}
		_, err := helm.Template(t, helmcli.Values{Set: values})
		if err == nil {
			t.Fatal("rendered, want an error")
		}
		for _, path := range append([]string{""}, closed...) {
			place := "at '/" + strings.ReplaceAll(path, ".", "/") + "'"
			if path == "" {
				place = "at ''"
			}
			if !strings.Contains(err.Error(), place+": additional properties 'typo' not allowed") {
				t.Errorf("no error %s:\n%v", place, err)
			}
		}
		for _, path := range open {
			if path == "controller.certManager.issuerRef" {
				continue // a sentence refuses it: TestImpossibleControllersAreRefused
			}
			if _, err := helm.Template(t, helmcli.Values{Set: set(path+".typo", "x")}); err != nil {
				t.Errorf("%s takes any key, but: %v", path, err)
			}
		}
	})
}

// openMaps are the values that take any key.
func openMaps() []string {
	all := []string{
		"global", "commonLabels", "commonAnnotations", "monitoring.podMonitor.labels",
		"monitoring.serviceMonitor.labels",
		"monitoring.prometheusRule.labels", "selftest.resources", "sidecars.provisioner.resources",
		"sidecars.resizer.resources", "sidecars.snapshotter.resources", "sidecars.nodeDriverRegistrar.resources",
		"sidecars.livenessProbe.resources",
		"operator.webhook.certManager.issuerRef", "controller.certManager.issuerRef",
		"monitoring.dashboard.labels", "monitoring.dashboard.annotations",
		"mounter.resources", "mounter.podAnnotations", "mounter.podLabels",
	}
	for _, who := range accounts() {
		all = append(all, who+".serviceAccount.annotations")
	}
	for _, workload := range []string{"driver", "controller", "operator", "legacyProvisioner"} {
		if workload != "legacyProvisioner" {
			all = append(all, workload+".podSecurityContext", workload+".securityContext")
		}
		for _, name := range []string{
			"resources", "nodeSelector", "affinity", "podAnnotations", "podLabels",
		} {
			all = append(all, workload+"."+name)
		}
	}
	return all
}

// TestEveryValueHasASchema and no schema is left without its value.
func TestEveryValueHasASchema(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(helmcli.ChartDir(t), "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var root schema
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	compareSchema(t, root, root, defaults(t), "")
}

// schema is as much of JSON Schema as the comparison needs.
type schema struct {
	Ref                  string            `json:"$ref"`
	Type                 any               `json:"type"`
	Enum                 []any             `json:"enum"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties any               `json:"additionalProperties"`
	Definitions          map[string]schema `json:"definitions"`
	Items                *schema           `json:"items"`
	Required             []string          `json:"required"`
}

func compareSchema(t *testing.T, root, node schema, value any, path string) {
	t.Helper()
	if node.Ref != "" {
		node = root.Definitions[strings.TrimPrefix(node.Ref, "#/definitions/")]
	}
	if node.Type == nil && node.Enum == nil {
		t.Errorf("%s: no type in the schema", path)
	}
	object, isObject := value.(map[string]any)
	if !isObject || node.Properties == nil {
		return
	}
	if node.AdditionalProperties != false && path != ".global" {
		t.Errorf("%s: its schema is not closed", path)
	}
	for _, key := range slices.Sorted(maps.Keys(node.Properties)) {
		if _, known := object[key]; !known && key != "maxSurge" {
			t.Errorf("%s.%s: in the schema, not in values.yaml", path, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		child, known := node.Properties[key]
		if !known {
			t.Errorf("%s.%s: in values.yaml, not in the schema", path, key)
			continue
		}
		if !mayBeEmpty(key, object[key]) && !slices.Contains(node.Required, key) {
			t.Errorf("%s.%s: its default is %v, and the schema does not require it: a key without a value, which takes "+
				"the default away, would be rendered", path, key, object[key])
		}
		compareSchema(t, root, child, object[key], path+"."+key)
	}
}

// mayBeEmpty reports whether a key can be written without a value: it is a map, its default is empty, or Kubernetes has
// one of its own.
func mayBeEmpty(key string, value any) bool {
	switch value.(type) {
	case map[string]any:
		return true
	case []any: // of some there may be none
		return key != "apiServerPorts"
	}
	return value == "" || slices.Contains([]string{
		"pullPolicy", "tag", "maxUnavailable", "type", "terminationGracePeriodSeconds", "revisionHistoryLimit",
	}, key)
}

// defaults is values.yaml.
func defaults(t *testing.T) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(helmcli.ChartDir(t), "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// objectPaths are the dotted paths of all maps below a map.
func objectPaths(values map[string]any, prefix string) []string {
	var paths []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if child, ok := values[key].(map[string]any); ok {
			paths = append(append(paths, prefix+key), objectPaths(child, prefix+key+".")...)
		}
	}
	return paths
}
