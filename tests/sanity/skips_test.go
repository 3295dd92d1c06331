package sanity_test

// skips are the specs that csi-sanity skips, each with the reason. A spec that
// is skipped without being listed fails the test, as does one listed that runs.
func skips() map[string]string {
	return map[string]string{}
}
