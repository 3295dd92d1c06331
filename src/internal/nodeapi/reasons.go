package nodeapi

// Reasons of a pool that are more than words for people. docs/reference/events.md has all of them.
const (
	ReasonNotChecked    = "NotChecked"    // not looked at yet, since the driver started
	ReasonNotSelected   = "NotSelected"   // this node is not selected for it, and never used it
	ReasonNotConfigured = "NotConfigured" // it left the configuration

	// Of a present pool that something is wrong with, the gravest first.
	ReasonReadOnly        = "ReadOnly"        // the filesystem is
	ReasonNoNewVolumes    = "NoNewVolumes"    // none can be made for now
	ReasonEnforcementLost = "EnforcementLost" // nothing keeps volumes to their size any more
)

// Reasons of warnings.
const (
	WarningVolumeLost        = "VolumeLost"        // a record has no directory
	WarningVolumeRefused     = "VolumeRefused"     // a record or directory cannot be used
	WarningVolumeNotEnforced = "VolumeNotEnforced" // a directory does not count to its volume's ID
	WarningVolumesMissing    = "VolumesMissing"    // PersistentVolumes name what an adopted pool does not have
	WarningPoolMountOptions  = "PoolMountOptions"  // a shared pool's mount options let nodes miss volumes
	WarningPoolOnOverlay     = "PoolOnOverlay"     // the driver has made the pool on an overlay, since its start
	WarningQuotaChanged      = "QuotaChanged"      // the driver has changed the filesystem's quota, since its start
)

// IsWarning reports whether a text is the reason of a warning.
func IsWarning(reason string) bool {
	switch reason {
	case WarningVolumeLost, WarningVolumeRefused, WarningVolumeNotEnforced, WarningVolumesMissing,
		WarningPoolMountOptions, WarningPoolOnOverlay, WarningQuotaChanged:
		return true
	default:
		return false
	}
}
