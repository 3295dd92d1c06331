package command

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// Check gathers all that is wrong with a command line, so that one start tells it.
type Check struct{ problems []error }

// That wants something of an option or environment variable; value is nil where want says it.
func (c *Check) That(met bool, option string, value any, want string) {
	if met {
		return
	}
	switch v := value.(type) {
	case nil:
	case string:
		option += ": " + strconv.Quote(v)
	default:
		option += ": " + fmt.Sprint(v)
	}
	c.problems = append(c.problems, fmt.Errorf("%s: %s", option, want))
}

// Log wants values of --log-level and --log-format.
func (c *Check) Log(level, format string) {
	_, err := logging.New(io.Discard, level, format)
	c.That(err == nil, "--log-level or --log-format", nil, fmt.Sprint(err))
}

// Err gives what is wrong, one line for each; nil for nothing.
func (c *Check) Err() error {
	if len(c.problems) == 0 {
		return nil
	}
	return fmt.Errorf("wrong options:\n%w", errors.Join(c.problems...))
}

// IsAddress reports whether text is host:port with a number as port; the host may be empty.
func IsAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// IsPath reports whether text is a clean absolute path.
func IsPath(text string) bool { return filepath.IsAbs(text) && filepath.Clean(text) == text }
