// Command provisioner makes hostPath PersistentVolumes of directories.
package main

import (
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/provisioner/internal/app"
)

func main() {
	os.Exit(app.Run(os.Args[1:], os.Getenv, os.Stderr))
}
