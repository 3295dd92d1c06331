// Command legacyprovisioner makes hostPath PersistentVolumes of directories.
package main

import (
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/app"
)

func main() {
	os.Exit(app.Run(os.Args[1:], os.Getenv, os.Stderr))
}
