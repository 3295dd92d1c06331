package burst

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Memory is the resident memory of processes in bytes, by node and name. Processes of one name on a node are added up.
type Memory map[string]map[string]int64

// MostOf is the memory of the processes of one name, on the node where that is most.
func (m Memory) MostOf(name string) int64 {
	var most int64
	for _, processes := range m {
		most = max(most, processes[name])
	}
	return most
}

// ReadMemory asks every node through exec, which runs a command there.
func ReadMemory(ctx context.Context, nodes, names []string,
	exec func(ctx context.Context, node string, command ...string) (string, error),
) (Memory, error) {
	m := Memory{}
	for _, node := range nodes {
		// Processes come and go while this runs: what has gone is passed over.
		text, err := exec(ctx, node, "sh", "-c", `grep -hsE '^(Name|VmRSS):' /proc/[0-9]*/status || true`)
		if err != nil {
			return nil, fmt.Errorf("read the memory of processes on %s: %w", node, err)
		}
		if m[node], err = parseStatus(text, names); err != nil {
			return nil, fmt.Errorf("read the memory of processes on %s: %w", node, err)
		}
	}
	return m, nil
}

// parseStatus adds up the lines Name and VmRSS of many /proc/PID/status.
func parseStatus(text string, names []string) (map[string]int64, error) {
	found := map[string]int64{}
	name := ""
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch {
		case key == "Name":
			name = value
		case key == "VmRSS" && slices.Contains(names, name):
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("VmRSS of %s: %w", name, err)
			}
			found[name] += kib << 10
		}
	}
	return found, nil
}
