package app

import (
	"io"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	o, err := parse([]string{"-out", "/x", "driver", "-rounds", "3", "-volumes", "1000,10,10"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.parts, []string{"driver"}) || o.out != "/x" || o.rounds != 3 ||
		!slices.Equal(o.volumes, []int{10, 1000}) {
		t.Errorf("got %+v", o)
	}
	if o, err = parse(nil, io.Discard); err != nil || !slices.Equal(o.parts, allParts()) {
		t.Errorf("no words: %v, %v", o.parts, err)
	}
	if o, err = parse([]string{"copies"}, io.Discard); err != nil || !slices.Equal(o.parts, []string{"copies"}) {
		t.Errorf("copies: %v, %v", o.parts, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for line, field := range map[string]string{
		"drive":         "drive",
		"report NEWER":  "report",
		"driver burst":  "driver burst",
		"-disks ram":    "-disks",
		"-volumes 100":  "-volumes",
		"-volumes 0,5":  "-volumes",
		"-subvolumes 5": "-subvolumes",
		"-rounds 0":     "-rounds",
		"-claims -1":    "-claims",
		"-bursts 0":     "-bursts",
		"-files 0":      "-files",
		"-starts 0":     "-starts",
		"-busy 0":       "-busy",
		"-systems mine": "-systems",
		"-dir here":     "-dir",
		"-nonsense":     "nonsense",
	} {
		if _, err := parse(strings.Fields(line), io.Discard); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%q: %v, want an error that names %q", line, err, field)
		}
	}
}
