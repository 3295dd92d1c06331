package harness

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/tests/internal/process"
)

// Process is a program that runs beside the test.
type Process = process.Process

// Run is process.Run.
func (*Server) Run(t *testing.T, binary string, environment []string, args ...string) *Process {
	t.Helper()
	return process.Run(t, binary, environment, args...)
}

// Build is process.Build.
func (*Server) Build(t *testing.T, program string) string {
	t.Helper()
	return process.Build(t, program)
}
