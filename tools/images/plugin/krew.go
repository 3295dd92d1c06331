package plugin

import (
	"strings"
	"text/template"
)

// krewManifest is as https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/ wants it. Without a list of files
// krew takes all of an archive.
const krewManifest = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: hpp
spec:
  version: v{{ .Version }}
  homepage: {{ .Repository }}
  shortDescription: See, explain, repair and move hostpath volumes
  description: |
    Administers the volumes of Hostpath Provisioner: what is on which node, why a
    claim or a pod waits, bringing deleted volumes back, moving volumes between
    nodes, and taking over those of other provisioners.
  caveats: |
    Most commands run in the controller's pod. The chart's value adminRoles.create
    makes roles that allow it.
  platforms:
{{- range .Built }}
  - selector:
      matchLabels:
        os: {{ .OS }}
        arch: {{ .Arch }}
    uri: {{ $.Repository }}/releases/download/v{{ $.Version }}/{{ .Name }}
    sha256: {{ .SHA256 }}
    bin: {{ .Binary }}
{{- end }}
`

// krew writes the manifest of a version. The tag of its release has a v before it.
func krew(version string, built []archive) ([]byte, error) {
	const repository = "https://github.com/hostpath-provisioner/hostpath-provisioner"
	parsed, err := template.New("krew").Parse(krewManifest)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	err = parsed.Execute(&text, struct {
		Version, Repository string
		Built               []archive
	}{version, repository, built})
	return []byte(text.String()), err
}
