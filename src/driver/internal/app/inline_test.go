package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIsInline: what the kubelet of Kubernetes 1.37 notes, and what is in doubt.
func TestIsInline(t *testing.T) {
	const noted = `{"attachmentID":"csi-0a","driverName":"kubevirt.io.hostpath-provisioner","nodeName":"node-1",` +
		`"specVolID":"scratch","volumeHandle":"csi-1","volumeLifecycleMode":"Ephemeral"}`
	for name, test := range map[string]struct {
		content string
		want    bool
	}{
		"inline":            {noted, true},
		"persistent":        {strings.Replace(noted, "Ephemeral", "Persistent", 1), false},
		"another volume":    {strings.Replace(noted, "csi-1", "csi-2", 1), false},
		"another driver":    {strings.Replace(noted, "kubevirt.io", "example.com", 1), false},
		"half of it":        {noted[:len(noted)-1], false},
		"empty":             {"", false},
		"nothing to notice": {"-", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if test.content != "-" {
				if err := os.WriteFile(filepath.Join(dir, "vol_data.json"), []byte(test.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got := isInline("kubevirt.io.hostpath-provisioner", "csi-1", filepath.Join(dir, "mount"))
			if got != test.want {
				t.Errorf("inline: %v", got)
			}
		})
	}
}
