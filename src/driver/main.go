// Command driver is the CSI driver of one node, and the admin's way to speak to it.
package main

import (
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/app"
)

func main() {
	os.Exit(app.Run(os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}
