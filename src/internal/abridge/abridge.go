// Package abridge shortens lists for people.
package abridge

import (
	"fmt"
	"strings"
)

// Names lists the first few names, and says how many more there are.
func Names(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
