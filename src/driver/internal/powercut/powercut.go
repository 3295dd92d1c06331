// Package powercut has no code of its own: its test binary runs in the VM of tests/vm, where it works the built driver by
// its CSI socket until the power is cut, and looks at what the disk holds afterwards. See tests/vm/power_test.go.
package powercut
