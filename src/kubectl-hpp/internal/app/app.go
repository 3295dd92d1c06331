// Package app makes the plugin out of its parts: flags, the connections, and what each command does with them.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/remote"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/repair"
)

// Exit codes.
const (
	exitFailed  = 1 // what was asked for could not be done
	exitUsage   = 2 // the command line is wrong
	exitTrouble = 3 // doctor and explain: something is wrong, and was said
)

// errTrouble is why doctor and explain end with exitTrouble: what is wrong has been printed.
var errTrouble = errors.New("something is wrong")

// errUsage is a command line that cannot be understood.
var errUsage = errors.New("wrong command line")

// plugin is what every command has.
type plugin struct {
	genericclioptions.IOStreams
	flags                   *genericclioptions.ConfigFlags
	driver, driverNamespace string
	now                     func() time.Time
	// client and exec stand in for the cluster; where they are nil, the kubeconfig says where it is.
	client  kubernetes.Interface
	objects dynamic.Interface // of kinds that are not Kubernetes' own
	exec    func(ctx context.Context, command []string) (stdout, stderr []byte, err error)
}

// long is what the help says.
const long = `Volumes of Hostpath Provisioner: see, explain, repair, move, migrate.

What is seen comes from the Kubernetes API and from the controller, in whose pod this runs commands with the rights
of its user. What needs no such right works without.

Exit codes: 0 done; 1 what was asked for could not be done; 2 the command line is wrong; 3 something is wrong with
volumes or nodes, and was said (doctor, explain).

Completion: "kubectl hpp completion bash --help" says how to load it for a shell. For "kubectl hpp" itself, kubectl
looks for a program kubectl_complete-hpp in the PATH: a file with these two lines, made executable:

  #!/bin/sh
  exec kubectl hpp __complete "$@"`

// Run does what the arguments say, and gives the exit code.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p := &plugin{
		IOStreams: genericclioptions.IOStreams{In: stdin, Out: stdout, ErrOut: stderr},
		flags:     genericclioptions.NewConfigFlags(true),
		now:       time.Now,
	}
	return p.run(ctx, args)
}

func (p *plugin) run(ctx context.Context, args []string) int {
	root := p.command() //nolint:contextcheck // each command has the context that it is run with
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errTrouble):
		return exitTrouble
	}
	_, _ = fmt.Fprintf(p.ErrOut, "error: %v\n", err)
	if errors.Is(err, cluster.ErrNoController) {
		_, _ = fmt.Fprintln(p.ErrOut, "`kubectl hpp doctor` looks at what is installed")
	}
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFailed
}

func (p *plugin) command() *cobra.Command {
	root := &cobra.Command{
		Use: "kubectl-hpp", Short: "Volumes of Hostpath Provisioner: see, explain, repair, move, migrate",
		Long:         long,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl hpp"},
		SilenceUsage: true, SilenceErrors: true, Version: buildinfo.Version(), SuggestionsMinimumDistance: 2,
		Args: refuseVerbs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { // before cobra looks, as errors of usage
		if err := cmp.Or(c.ValidateRequiredFlags(), c.ValidateFlagGroups()); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		return nil
	}
	root.AddCommand(p.moving()...)
	flags := root.PersistentFlags()
	p.flags.AddFlags(flags)
	flags.StringVar(&p.driver, "driver", "", "name of the CSI driver, where several releases are installed")
	flags.StringVar(&p.driverNamespace, "driver-namespace", "",
		"namespace in which the driver is installed; empty looks for it")
	root.AddCommand(p.status(), p.get())
	root.AddCommand(p.diagnosis()...)
	root.AddCommand(repair.Commands(repair.Config{
		IOStreams: p.IOStreams, API: p.api, Controller: p.controller, Namespace: p.namespace, Usage: errUsage,
		Kubectl: p.kubectl, Poll: 2 * time.Second, // each time is a command in the controller's pod
	})...)
	root.AddCommand(newMigrate(p))
	refuseArguments(root)
	return root
}

// kubectl begins commands for the same cluster.
func (p *plugin) kubectl() string {
	words := []string{"kubectl"}
	for _, flag := range []struct{ name, value string }{
		{"kubeconfig", *p.flags.KubeConfig}, {"context", *p.flags.Context},
	} {
		if flag.value != "" {
			words = append(words, "--"+flag.name, flag.value)
		}
	}
	return strings.Join(words, " ")
}

// refuseVerbs refuses a verb that there is none of, and names those that are like it.
func refuseVerbs(root *cobra.Command, args []string) error {
	err := cobra.NoArgs(root, args)
	if err == nil {
		return nil
	}
	if alike := root.SuggestionsFor(args[0]); len(alike) > 0 {
		return fmt.Errorf("%w; did you mean %s?", err, strings.Join(alike, " or "))
	}
	return fmt.Errorf("%w; `kubectl hpp --help` lists them", err)
}

// refuseArguments makes wrong arguments of a command, and of those below it, errors of usage.
func refuseArguments(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if err != nil && !errors.Is(err, errUsage) {
				err = fmt.Errorf("%w: %w", errUsage, err)
			}
			return err
		}
	}
	for _, below := range c.Commands() {
		refuseArguments(below)
	}
}

// api gives a client of the API server.
func (p *plugin) api() (kubernetes.Interface, error) {
	if p.client != nil {
		return p.client, nil
	}
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	raw, err := p.flags.ToRawKubeConfigLoader().RawConfig()
	_, inCluster := os.LookupEnv("KUBERNETES_SERVICE_HOST")
	if err == nil && len(raw.Clusters) == 0 && *p.flags.APIServer == "" && !inCluster {
		return nil, errors.New("no cluster is known: there is no kubeconfig; name yours by KUBECONFIG or " +
			"--kubeconfig, such as /etc/rancher/k3s/k3s.yaml")
	}
	config.QPS, config.Burst = 50, 100 // lists of a large cluster have many pages
	return kubernetes.NewForConfig(config)
}

// namespace is that of the user's claims.
func (p *plugin) namespace() (string, error) {
	namespace, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// controller gives the controller, in whose pod commands can be run.
func (p *plugin) controller(ctx context.Context) (*remote.Controller, error) {
	api, err := p.api()
	if err != nil {
		return nil, err
	}
	at, err := cluster.FindController(ctx, api, p.driverNamespace, p.driver)
	if err != nil {
		return nil, err
	}
	if p.exec != nil {
		return &remote.Controller{At: at, Version: buildinfo.Version(), Exec: p.exec}, nil
	}
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return remote.New(config, api, at, buildinfo.Version()), nil
}
