module github.com/hostpath-provisioner/hostpath-provisioner/tools/images

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/google/go-containerregistry v0.22.1
	github.com/spf13/cobra v1.10.2
	golang.org/x/sync v0.24.0
)
