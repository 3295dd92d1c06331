package table_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/table"
)

// TestPaint: nothing is coloured but on a terminal.
func TestPaint(t *testing.T) {
	var out strings.Builder
	if table.PaintFor(&out) {
		t.Error("a buffer is no terminal")
	}
	if got := table.Paint(true).Red("!") + table.Paint(false).Green("!"); got != "\x1b[31m!\x1b[0m!" {
		t.Errorf("got %q", got)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the pipe is closed") }

// TestClosedPipe: whoever reads no more is no reason for silence.
func TestClosedPipe(t *testing.T) {
	rows := table.Rows[string]{
		All: []string{
			"a",
		},
		Name:    strings.ToUpper,
		Columns: []table.Column[string]{{Head: "HEAD", Cell: strings.ToUpper}},
	}
	for _, format := range []string{table.Table, table.Wide, table.JSON, table.YAML, table.Name} {
		if err := rows.Write(broken{}, format); err == nil {
			t.Errorf("%s: no error", format)
		}
	}
}
