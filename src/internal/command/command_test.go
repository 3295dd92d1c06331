package command_test

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
)

func TestIsAddress(t *testing.T) {
	for text, want := range map[string]bool{
		":9898": true, "127.0.0.1:0": true, "[::1]:65535": true, "host:80": true,
		"": false, "9898": false, ":65536": false, ":http": false, ":-1": false, "::1:80": false,
	} {
		if got := command.IsAddress(text); got != want {
			t.Errorf("IsAddress(%q) = %v, want %v", text, got, want)
		}
	}
}
