package kindcluster

import (
	"os"
	"testing"
)

func TestAddNoProxyOnlyWhereThereIsAProxy(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		want string
	}{
		"no proxy":         {map[string]string{"NO_PROXY": "a"}, ""},
		"nothing yet":      {map[string]string{"HTTPS_PROXY": "http://p"}, "c-registry"},
		"one more":         {map[string]string{"http_proxy": "http://p", "NO_PROXY": "a,b"}, "a,b,c-registry"},
		"in small letters": {map[string]string{"http_proxy": "http://p", "no_proxy": "a"}, "a,c-registry"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := addNoProxy(func(key string) string { return test.env[key] }, "c-registry"); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestSetEnvPutsBackWhatWasThere(t *testing.T) {
	t.Setenv("HPP_TEST_SET", "before")
	restore, err := setEnv(map[string]string{"HPP_TEST_SET": "x", "HPP_TEST_UNSET": "y"})
	if err != nil {
		t.Fatal(err)
	}
	if lookup(t, "HPP_TEST_SET") != "x" || lookup(t, "HPP_TEST_UNSET") != "y" {
		t.Error("the variables are not set")
	}
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	if got := lookup(t, "HPP_TEST_SET"); got != "before" {
		t.Errorf("%q, want what was there before", got)
	}
	if got := lookup(t, "HPP_TEST_UNSET"); got != "(unset)" {
		t.Errorf("%q, want it unset", got)
	}
}

func lookup(t *testing.T, key string) string {
	t.Helper()
	if value, ok := os.LookupEnv(key); ok {
		return value
	}
	return "(unset)"
}
