// Package buildinfo says which version of the project a binary is.
package buildinfo

// version is set by the linker, which can set nothing but a package variable: -ldflags "-X …/buildinfo.version=0.1.0".
var version = "0.0.0-dev"

// Version is the project's version, "0.0.0-dev" in a binary that was built without one.
func Version() string { return version }
