package command_test

import (
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
)

func TestCheckGathersWhatIsWrong(t *testing.T) {
	var c command.Check
	c.That(true, "--name", "a", "want a name")
	c.Log("info", "json")
	if err := c.Err(); err != nil {
		t.Errorf("nothing is wrong: %v", err)
	}
	c.That(false, "--name", "", "want a name")
	c.That(false, "--grace", time.Minute, "want less")
	c.That(false, "--a, --b", nil, "want one of the two")
	c.Log("loud", "json")
	const want = `wrong options:
--name: "": want a name
--grace: 1m0s: want less
--a, --b: want one of the two
--log-level or --log-format: log level "loud": want debug, info, warn or error`
	if err := c.Err(); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

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

func TestIsPath(t *testing.T) {
	for text, want := range map[string]bool{
		"/": true, "/a/b": true, "": false, "a": false, "/a/": false, "/a/..": false,
	} {
		if got := command.IsPath(text); got != want {
			t.Errorf("IsPath(%q) = %v, want %v", text, got, want)
		}
	}
}
