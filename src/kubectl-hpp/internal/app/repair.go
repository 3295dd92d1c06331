package app

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/repair"
)

// pollInterval is how often the controller is asked how far its work is: each time is a command in its pod.
const pollInterval = 2 * time.Second

func (p *plugin) repairCommands() []*cobra.Command {
	return repair.Commands(repair.Config{
		IOStreams: p.IOStreams, API: p.api, Controller: p.controller, Namespace: p.namespace, Usage: errUsage,
		Poll: pollInterval,
	})
}
