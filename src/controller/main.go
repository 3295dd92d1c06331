// Command controller is the CSI driver's controller, one for all nodes, and the admin's way to speak to them.
package main

import (
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/controller/internal/app"
)

func main() {
	os.Exit(app.Run(os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}
