package dockercli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

// waitTimeout is how long a pull may take until the first layer is named.
// Without a way to the registry some networks answer nothing at all.
const waitTimeout = 20 * time.Second

// Pull pulls an image. It gives up when nothing has been heard from the
// registry after a short while; a slow download is waited for.
func Pull(ctx context.Context, image string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unreachable := fmt.Errorf("no answer from its registry within %s", waitTimeout)
	var heard atomic.Bool
	timer := time.AfterFunc(waitTimeout, func() {
		if !heard.Load() {
			cancel(unreachable)
		}
	})
	defer timer.Stop()

	cmd := exec.CommandContext(ctx, "docker", "pull", image)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	waitForLayer(stdout, &heard)
	err = cmd.Wait()
	if errors.Is(context.Cause(ctx), unreachable) {
		return unreachable
	}
	if err != nil {
		return errors.New(lastLine(stderr.String()))
	}
	return nil
}

// waitForLayer reads until the end and notes the first line about a layer:
// "Pulling from" alone is printed before the registry has answered.
func waitForLayer(output io.Reader, heard *atomic.Bool) {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if strings.Contains(lines.Text(), ": Pulling fs layer") || strings.Contains(lines.Text(), "Digest:") {
			heard.Store(true)
		}
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
