package chart

import (
	"encoding/xml"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/charts"
	"github.com/hostpath-provisioner/hostpath-provisioner/tests/chart/helmcli"
)

// TestLint runs chart-testing on all ci files.
func TestLint(t *testing.T) {
	t.Parallel()
	ct := helmcli.Tool(t, "ct", "v3.14.0")
	helmcli.Each(t, func(t *testing.T, helm helmcli.Helm) {
		command := exec.CommandContext(t.Context(), ct, "lint", "--config", "ct.yaml", "--all")
		command.Dir, command.Env = helmcli.Root(t), helm.Environment(t)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("ct lint: %v\n%s", err, out)
		}
		for _, file := range []string{"default", "operator", "options", "provisioners", "rights", "two-pools"} {
			if !strings.Contains(string(out), file+"-values.yaml") {
				t.Errorf("ct lint did not look at ci/%s-values.yaml:\n%s", file, out)
			}
		}
	})
}

// TestTemplatesAreReproducible: these functions give another result each time or ask the cluster; under Argo CD, Flux
// or an operator that re-rolls objects for ever. And the namespace comes from one helper.
func TestTemplatesAreReproducible(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(
		`\b(lookup|gen(CA|SelfSignedCert|SignedCert|PrivateKey)\w*|rand\w+|now|uuidv4|date\w*|ago|htpasswd|bcrypt|getHostByName)\b`,
	)
	namespace := regexp.MustCompile(`\.Release\.Namespace`)
	templates := os.DirFS(filepath.Join(helmcli.ChartDir(t), "templates"))
	action := regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	err := fs.WalkDir(templates, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(templates, name)
		if err != nil {
			return err
		}
		for _, code := range action.FindAllString(string(data), -1) {
			if strings.Contains(code, "/*") {
				continue
			}
			// What stands in quotes is text, not a call.
			call := regexp.MustCompile(`"(\\.|[^"\\])*"`).ReplaceAllString(code, "")
			if found := forbidden.FindString(call); found != "" {
				t.Errorf("%s calls %s: %s", name, found, code)
			}
			if namespace.MatchString(code) && name != "_helpers.tpl" && name != "NOTES.txt" {
				t.Errorf("%s uses .Release.Namespace, not the helper: %s", name, code)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEmbeddedChartIsComplete: go:embed leaves out names that begin with "_" or "." unless told otherwise.
func TestEmbeddedChartIsComplete(t *testing.T) {
	t.Parallel()
	embedded, err := charts.HostpathProvisioner()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files(t, os.DirFS(helmcli.ChartDir(t))), files(t, embedded)); diff != "" {
		t.Errorf("files on disk and embedded (-disk +embedded):\n%s", diff)
	}
}

func files(t *testing.T, tree fs.FS) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestPackage: the packaged chart renders like the folder, and holds neither ci files, nor examples, nor a definition.
func TestPackage(t *testing.T) {
	t.Parallel()
	helmcli.Each(t, func(t *testing.T, helm helmcli.Helm) {
		dir := t.TempDir()
		if _, err := helm.Run(t, helmcli.Values{}, "package", helmcli.ChartDir(t), "--destination", dir); err != nil {
			t.Fatal(err)
		}
		archive := filepath.Join(dir, "hostpath-provisioner-"+helmcli.Chart(t).Version+".tgz")
		list, err := exec.CommandContext(t.Context(), "tar", "-tzf", archive).Output()
		if err != nil {
			t.Fatal(err)
		}
		names := strings.Fields(string(list))
		for _, folder := range []string{"/ci/", "/examples/", "/files/", "/crds/"} {
			if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, folder) }) {
				t.Errorf("the package holds files of %s: %v", folder, names)
			}
		}
		for _, needed := range []string{"templates/_helpers.tpl", "values.schema.json", "README.md"} {
			if !slices.Contains(names, "hostpath-provisioner/"+needed) {
				t.Errorf("the package lacks %s: %v", needed, names)
			}
		}
		if _, err := helm.Run(
			t, helmcli.Values{}, "template", helmcli.Release, archive, "--kube-version", helmcli.KubeVersion,
		); err != nil {
			t.Error(err)
		}
	})
}

// TestIcon: Chart.yaml names the one in the repository, a picture that needs nothing from elsewhere.
func TestIcon(t *testing.T) {
	t.Parallel()
	chart := helmcli.Chart(t)
	const at = "https://raw.githubusercontent.com/hostpath-provisioner/hostpath-provisioner/main/"
	file, found := strings.CutPrefix(chart.Icon, at)
	if !found {
		t.Fatalf("icon %q, want one below %s", chart.Icon, at)
	}
	data, err := os.ReadFile(filepath.Join(helmcli.Root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	var picture struct {
		XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
		Label   string   `xml:"aria-label,attr"`
	}
	if err := xml.Unmarshal(data, &picture); err != nil || picture.Label == "" {
		t.Errorf("%s: label %q, %v", file, picture.Label, err)
	}
	if links := strings.Count(string(data), "http"); links != 1 || strings.Contains(string(data), "<script") {
		t.Errorf("%s has %d addresses, want its namespace alone, and no script", file, links)
	}
}

// TestArtifactHubAnnotations: what the index says is what the chart renders.
func TestArtifactHubAnnotations(t *testing.T) {
	t.Parallel()
	chart := helmcli.Chart(t)
	var listed []struct {
		Image string `json:"image"`
	}
	if err := yaml.Unmarshal([]byte(chart.Annotations["artifacthub.io/images"]), &listed); err != nil {
		t.Fatalf("artifacthub.io/images: %v", err)
	}
	var named []string
	for _, image := range listed {
		named = append(named, image.Image)
	}
	rendered := images(t, helmcli.Values{Set: map[string]string{
		"sidecars.nodeDriverRegistrar.enabled": "true", "sidecars.livenessProbe.enabled": "true",
		"legacyProvisioner.enabled": "true", "snapshots": "true",
	}})
	rendered = append(rendered, images(t, withOperator(helmcli.Values{}, nil))...)
	rendered = append(rendered, images(t, mounterValues())...)
	if diff := cmp.Diff(sorted(rendered), sorted(named)); diff != "" {
		t.Errorf("artifacthub.io/images (-rendered +annotation):\n%s", diff)
	}
	if diff := cmp.Diff(sorted(rendered), sorted(strings.Fields(manifest(t, "images.txt")))); diff != "" {
		t.Errorf("deploy/images.txt (-rendered +file):\n%s", diff)
	}
	var changes []struct {
		Kind, Description string
	}
	if err := yaml.UnmarshalStrict([]byte(chart.Annotations["artifacthub.io/changes"]), &changes); err != nil ||
		len(changes) == 0 {
		t.Errorf("artifacthub.io/changes: %v, %v", changes, err)
	}
}

// TestArtifactHubIDIsOne that Artifact Hub has given, or is left out: an invented one claims another's repository.
func TestArtifactHubIDIsOne(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(helmcli.ChartDir(t), "..", "artifacthub-repo.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var repository struct {
		ID *string `json:"repositoryID"`
	}
	if err := yaml.UnmarshalStrict(data, &repository); err != nil {
		t.Fatal(err)
	}
	given := regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	if id := repository.ID; id != nil && (!given.MatchString(*id) || strings.Trim(*id, "0-") == "") {
		t.Errorf("repositoryID %q: want the one that Artifact Hub gave, or none", *id)
	}
}

// TestEveryValueIsExplained: a line `# --` above each value that is not a mere group.
func TestEveryValueIsExplained(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(helmcli.ChartDir(t), "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	key := regexp.MustCompile(`^( *)([A-Za-z]+):(.*)$`)
	explained, within := false, -1 // within: indentation of an explained value whose content is not explained further
	for number, line := range lines {
		match := key.FindStringSubmatch(line)
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "# --"):
			explained = true
		case match != nil && (within < 0 || len(match[1]) <= within):
			group := strings.TrimSpace(match[3]) == "" && !explained
			if group && !isGroup(lines[number+1:], len(match[1])) {
				t.Errorf("values.yaml:%d: %s has no `# --` line", number+1, match[2])
			}
			if !group && !explained {
				t.Errorf("values.yaml:%d: %s has no `# --` line", number+1, match[2])
			}
			within = -1
			if explained {
				within = len(match[1])
			}
			explained = false
		}
	}
}

// isGroup tells whether the lines after a key hold keys of its own with explanations.
func isGroup(after []string, indent int) bool {
	for _, line := range after {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "# --") && len(line)-len(strings.TrimLeft(line, " ")) > indent {
			return true
		}
		if trimmed != "" && !strings.HasPrefix(trimmed, "#") && len(line)-len(strings.TrimLeft(line, " ")) <= indent {
			return false
		}
	}
	return false
}
