// Command operator runs the driver, and what belongs to it, as a HostPathProvisioner says.
package main

import (
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/app"
)

func main() {
	os.Exit(app.Run(os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}
