// Command mounter puts the filesystem of a claim at a pool's path on the node that it runs on.
package main

import (
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/mounter/internal/app"
)

func main() {
	os.Exit(app.Run(os.Args[1:], os.Stdout, os.Stderr))
}
