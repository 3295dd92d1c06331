package poolspec

import "regexp"

// volume is the name of a PersistentVolume that was made for a claim, wherever in a directory's name a provisioner puts
// it, or that of an inline volume of the driver.
var volume = regexp.MustCompile(
	`(^|/)([^/]*pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[^/]*|csi-[0-9a-f]{64})(/|$)`)

// VolumeIn gives the first component of a path that is named like the directory of a volume, "" if none is.
func VolumeIn(path string) string {
	if found := volume.FindStringSubmatch(path); found != nil {
		return found[2]
	}
	return ""
}
