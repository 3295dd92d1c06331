package dockercli

import "testing"

func TestSaysMissingKnowsOldAndNewWords(t *testing.T) {
	for said, want := range map[string]bool{
		"Error: No such image: x":                              true,
		"Error: No such container: x":                          true,
		"Error response from daemon: network x not found":      true,
		"Error: No such network: x":                            true,
		"Cannot connect to the Docker daemon. Is it running?":  false,
		"Error response from daemon: permission denied for x.": false,
	} {
		if got := saysMissing(said); got != want {
			t.Errorf("%q: %t, want %t", said, got, want)
		}
	}
}
