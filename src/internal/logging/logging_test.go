package logging_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

func TestNew(t *testing.T) {
	for _, test := range []struct {
		level, format string
		lines         int
	}{
		{"debug", "json", 4}, {"info", "json", 3}, {"WARN", "text", 2}, {"error", "text", 1},
	} {
		var out bytes.Buffer
		log, err := logging.New(&out, test.level, test.format)
		if err != nil {
			t.Fatal(err)
		}
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			log.Log(t.Context(), level, "something happened", slog.String(logging.KeyPool, "local"))
		}
		if got := strings.Count(out.String(), "\n"); got != test.lines {
			t.Errorf("%s: %d lines, want %d:\n%s", test.level, got, test.lines, out.String())
		}
		isJSON := json.Valid(bytes.SplitN(out.Bytes(), []byte("\n"), 2)[0])
		if isJSON != (test.format == "json") {
			t.Errorf("%s: wrote %s", test.format, out.String())
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, test := range []struct{ level, format, says string }{
		{"loud", "json", `"loud": want debug`}, {"info", "xml", `"xml": want json or text`},
	} {
		_, err := logging.New(&bytes.Buffer{}, test.level, test.format)
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v: got %v", test, err)
		}
	}
}
