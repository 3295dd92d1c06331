package app

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/command"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// modeNode is the one mode of this version: one instance on each node, as kubevirt's legacy provisioner works.
const modeNode = "node"

// Values of PV_CAPACITY.
const (
	capacityRequested  = "requested"
	capacityFilesystem = "filesystem"
)

// options is the command line and the environment.
type options struct {
	mode, kubeconfig, httpAddress, logLevel, logFormat string
	// directory, node, namingPrefix and capacity are PV_DIR, NODE_NAME, USE_NAMING_PREFIX and PV_CAPACITY, which
	// kubevirt's provisioner reads from the environment too (but for the last, which is ours).
	directory, node, namingPrefix, capacity string
}

// parse reads arguments and environment, and checks them. flag.ErrHelp means that help was asked for and given.
func parse(args []string, getenv func(string) string, output io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("provisioner", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.mode, "mode", modeNode, "how volumes are placed; this version has only "+modeNode)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file with access to the cluster; empty inside the cluster")
	flags.StringVar(&o.httpAddress, "http-address", ":9896", "address of /healthz, /readyz and /metrics; empty for none")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "json or text")
	flags.Usage = func() { usage(flags) }
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q: there are only flags", flags.Arg(0))
	}
	o.node = getenv("NODE_NAME")
	if directory := getenv("PV_DIR"); directory != "" {
		o.directory = filepath.Clean(directory)
	}
	o.namingPrefix = strings.ToLower(cmp.Or(getenv("USE_NAMING_PREFIX"), "false"))
	o.capacity = cmp.Or(getenv("PV_CAPACITY"), capacityRequested)
	if err := o.validate(); err != nil {
		return o, fmt.Errorf("wrong options:\n%w", err)
	}
	return o, nil
}

func usage(flags *flag.FlagSet) {
	_, _ = fmt.Fprint(flags.Output(),
		"provisioner makes hostPath PersistentVolumes of directories on the node it runs on.\n\n"+
			"Environment:\n"+
			"  PV_DIR             directory of the volumes, the same path here and on the host\n"+
			"  NODE_NAME          name of this node in the cluster\n"+
			"  USE_NAMING_PREFIX  true: directories are called <claim>-<volume>; false (default): <volume>\n"+
			"  PV_CAPACITY        requested (default): a volume says its claim's size; filesystem: its filesystem's\n\n"+
			"Flags:\n")
	flags.PrintDefaults()
}

// validate gives all that is wrong, one line for each.
func (o *options) validate() error {
	_, logErr := logging.New(io.Discard, o.logLevel, o.logFormat)
	var problems []error
	for _, rule := range []struct {
		broken bool
		what   string
	}{
		{o.mode != modeNode, fmt.Sprintf("--mode: %q: this version has only %s", o.mode, modeNode)},
		{
			o.httpAddress != "" && !command.IsAddress(o.httpAddress),
			fmt.Sprintf("--http-address: %q: want host:port, :port or nothing", o.httpAddress),
		},
		{logErr != nil, fmt.Sprintf("--log-level or --log-format: %v", logErr)},
		{
			!filepath.IsAbs(o.directory) || o.directory == "/",
			fmt.Sprintf("PV_DIR: %q: want the absolute path of a directory for the volumes, such as /var/hpvolumes",
				o.directory),
		},
		{
			len(validation.IsDNS1123Subdomain(o.node)) > 0,
			fmt.Sprintf("NODE_NAME: %q: want the node's name in the cluster", o.node),
		},
		{
			o.namingPrefix != "true" && o.namingPrefix != "false",
			fmt.Sprintf("USE_NAMING_PREFIX: %q: want true or false", o.namingPrefix),
		},
		{
			o.capacity != capacityRequested && o.capacity != capacityFilesystem,
			fmt.Sprintf("PV_CAPACITY: %q: want %s or %s", o.capacity, capacityRequested, capacityFilesystem),
		},
	} {
		if rule.broken {
			problems = append(problems, errors.New(rule.what))
		}
	}
	return errors.Join(problems...)
}
