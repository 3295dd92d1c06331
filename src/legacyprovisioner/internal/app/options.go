package app

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
)

// modes are the values of --mode.
func modes() map[string]mode {
	return map[string]mode{
		modeNode: nodeMode(), modeNetworkFS: networkFSMode(), modeEveryNode: everyNodeMode(),
		modeEveryNodeManager: everyNodeManagerMode(),
	}
}

// mode is one way of working, with flags and environment variables of its own.
type mode struct {
	// about says for -help what it does, and environment what each of its variables means.
	about, environment string
	// httpAddress is its default of --http-address.
	httpAddress string
	settings
}

// settings are the options of one mode.
type settings interface {
	// define adds the flags, and reads the environment.
	define(flags *flag.FlagSet, getenv func(string) string)
	// check says what is wrong with them.
	check(c *command.Check, o options)
	// serve works until ctx ends.
	serve(ctx context.Context, o options, log *slog.Logger) error
}

// options are those of every mode, with the mode's own.
type options struct {
	mode, kubeconfig, httpAddress, logLevel, logFormat string

	own settings
}

// parse reads arguments and environment, and checks them. flag.ErrHelp means that help was asked for and given.
func parse(args []string, getenv func(string) string, output io.Writer) (options, error) {
	o := options{mode: modeOf(args)}
	known := modes()
	chosen, ok := known[o.mode]
	names := slices.Sorted(maps.Keys(known))
	if !ok {
		return o, fmt.Errorf("--mode: %q: want one of %s", o.mode, strings.Join(names, ", "))
	}
	o.own = chosen.settings
	flags := flag.NewFlagSet("legacyprovisioner", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.mode, "mode", modeNode, "how volumes are made: "+strings.Join(names, ", "))
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file with access to the cluster; empty inside the cluster")
	flags.StringVar(&o.httpAddress, "http-address", chosen.httpAddress,
		"address of /healthz, /readyz and /metrics; empty for none")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "json or text")
	o.own.define(flags, getenv)
	flags.Usage = func() { usage(chosen, flags) }
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q: there are only flags", flags.Arg(0))
	}
	var c command.Check
	c.That(o.httpAddress == "" || command.IsAddress(o.httpAddress), "--http-address", o.httpAddress,
		"want host:port, :port or nothing")
	c.Log(o.logLevel, o.logFormat)
	o.own.check(&c, o)
	return o, c.Err()
}

// modeOf gives the value of --mode, which decides what other flags there are.
func modeOf(args []string) string {
	found := modeNode
	for i, arg := range args {
		name, value, with := strings.Cut(arg, "=")
		if name != "-mode" && name != "--mode" {
			continue
		}
		if !with && i+1 < len(args) {
			value = args[i+1]
		}
		found = value
	}
	return found
}

func usage(m mode, flags *flag.FlagSet) {
	text := m.about + "\n\n"
	if m.environment != "" {
		text += "Environment:\n" + m.environment + "\n"
	}
	_, _ = fmt.Fprint(flags.Output(), text+"Flags:\n")
	flags.PrintDefaults()
}
