package main

import "strings"

// documents splits a rendering into its objects, as text: comments of the templates stay.
func documents(manifest string) []string {
	var all []string
	for part := range strings.SplitSeq("\n"+manifest, "\n---\n") {
		if part = strings.Trim(part, "\n"); kind(part) != "" {
			all = append(all, strings.TrimPrefix(part, "---\n"))
		}
	}
	return all
}

// kind is the document's own kind, "" of one that is only comments.
func kind(document string) string {
	for line := range strings.SplitSeq(document, "\n") {
		if value, found := strings.CutPrefix(line, "kind: "); found {
			return value
		}
	}
	return ""
}

// clean removes what is true of a Helm release only; of a sample, all labels.
func clean(document string, sample bool) string {
	var kept []string
	inLabels := false
	for line := range strings.SplitSeq(document, "\n") {
		if inLabels && strings.HasPrefix(line, "    ") {
			continue
		}
		inLabels = sample && line == "  labels:"
		if inLabels || ofRelease(line) {
			continue
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n") + "\n"
}

// ofRelease reports whether a line says where Helm found the object, or that Helm keeps it.
func ofRelease(line string) bool {
	text := strings.TrimSpace(line)
	return strings.HasPrefix(text, "# Source: ") || strings.HasPrefix(text, "helm.sh/chart: ") ||
		text == "app.kubernetes.io/managed-by: Helm"
}
