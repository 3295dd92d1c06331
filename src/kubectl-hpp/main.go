// Command kubectl-hpp is the plugin `kubectl hpp`: what an administrator asks and does about volumes, from anywhere.
package main

import (
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/app"
)

func main() {
	os.Exit(app.Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
