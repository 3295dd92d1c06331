// Package powercuttest has no code of its own: its test binary runs in the VM of tests/vm. There it sends requests to
// the built driver until the power is cut, and reports what the disk has afterwards. See tests/vm/power_test.go.
package powercuttest
