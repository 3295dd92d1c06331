# Everything a developer types; `make` alone prints the list. What a target does is in the Go program or the test it names.
# Tools are built from tools/ at pinned versions and stay outside the clone, in $HPP_CACHE (default ~/.cache/hostpath-provisioner).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Debian gives only root a path with mkfs in it.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin

MODULES := . tests tools tools/images
# What the chart's appVersion says is what the binaries say.
VERSION := $(shell sed -n 's/^appVersion: *"\{0,1\}\([^"]*\)"\{0,1\}/\1/p' charts/hostpath-provisioner/Chart.yaml)
LDFLAGS := -s -w -X github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo.version=$(VERSION)
# Runs, not seconds: with a time, go test now and then calls its end a failure.
FUZZ_TIME ?= 100000x
# On each filesystem; nightly it is 30. A cut takes about a minute.
POWER_CUTS := 3
POWER_TIMEOUT ?= 6h
VM_TOOLS := qemu-system-x86_64 modprobe mkfs.ext4 mkfs.xfs mkfs.btrfs
HELM_DOCS := --chart-search-root charts --template-files ./../tools/helm-docs/README.md.gotmpl

TUNNEL := src/driver/internal/tunnel/wire
CRD := crd:allowDangerousTypes=true,maxDescLen=250 paths=./src/api/...

# Shell words that show what a command prints and fail unless a line matches: go test is content with no test.
saying = tee >(cat >&2) | grep '$(1)' >/dev/null

# Shell words that build a tool if it is not there yet and become its path.
tool = $$(go -C $(CURDIR)/tools run ./install $(1))

##@ Use
.PHONY: help up down
help: ## Print this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: ## A kind cluster (1 + 2 nodes) with the driver, a class and a pod that uses it (VALUES=my.yaml: as you say); again: update in place
	go -C tests run ./cluster up $(foreach file,$(VALUES),--values $(abspath $(file)))

down: ## Remove that cluster and all that belongs to it
	go -C tests run ./cluster down

##@ Test
.PHONY: test test-unit test-sanity test-quota-vm test-power chart-test test-api e2e e2e-nightly perf perf-controller fuzz
test: ## All of it, as CI runs it, with the seconds that each part took
	@for part in verify test-unit test-sanity test-quota-vm test-power chart-test test-api e2e; do \
	  start=$$SECONDS; $(MAKE) --no-print-directory $$part; echo "make $$part: $$((SECONDS - start)) s"; \
	done; echo "make test: $$SECONDS s"

test-unit: ## Unit and crash tests of every module, with the race detector on what ships
	@go -C tools run ./install gcc mkfs.ext4 mkfs.xfs mkfs.btrfs >/dev/null
	CGO_ENABLED=1 go test -count=1 -race ./...
	go -C tools test -count=1 ./...
	go -C tools/images test -count=1 ./...
	go -C tests test -count=1 ./internal/... ./cluster/... ./perf/...

test-sanity: ## csi-sanity against the built driver's socket, on each filesystem that the kernel has (root)
	@go -C tools run ./install mkfs.ext4 mkfs.xfs mkfs.btrfs >/dev/null
	go -C tests test -count=1 -timeout 20m ./sanity/...

test-quota-vm: ## Project quota on XFS and ext4, csi-sanity on it too, in a VM with Debian's kernel (qemu, no KVM needed)
	@go -C tools run ./install $(VM_TOOLS) >/dev/null
	go -C tests test -count=1 -timeout 30m -skip '^TestPowerCuts$$' ./vm

test-power: ## Cut the power of that VM POWER_CUTS (3) times on each of XFS, ext4 and btrfs, and look at the disk
	@go -C tools run ./install $(VM_TOOLS) >/dev/null
	HPP_POWER_CUTS=$(POWER_CUTS) go -C tests test -count=1 -timeout $(POWER_TIMEOUT) -v -run '^TestPowerCuts$$' ./vm \
	  | $(call saying,^--- PASS: TestPowerCuts)

chart-test: ## Chart: lint, render into the real types, server-side dry run, Helm 3 and 4
	@go -C tools run ./install helm3 helm4 ct promtool >/dev/null
	go -C tests test -count=1 -timeout 20m ./chart ./chart/apiserver

test-api: ## Operator, custom resource, certificates, legacy provisioners on a real API server without nodes
	@go -C tools run ./install helm3 helm4 >/dev/null
	go -C tests test -count=1 -timeout 20m -p 4 ./api/operator ./api/controller ./api/everynode ./api/...

e2e: ## Features on a kind cluster of their own (hpp-e2e), which is removed afterwards
	@go -C tools run ./install helm3 helm4 ct mkfs.btrfs >/dev/null
	go -C tests test -count=1 -timeout 60m -v ./e2e/...

e2e-nightly: export HPP_E2E := nightly
e2e-nightly: e2e ## The same, and the features that are too slow for every change

perf: ## Measure (root); the report, a plot and JSON go to artifacts/perf
	@go -C tools run ./install benchstat fio helm4 mkfs.ext4 mkfs.xfs mkfs.btrfs >/dev/null
	go -C tests run ./perf -out $(CURDIR)/artifacts/perf

perf-controller: ## Measure the controller with 500 simulated nodes (root; FLAGS="-nodes 20 -volumes 200": fewer)
	@go -C tools run ./install helm3 helm4 >/dev/null
	HPP_PERF_CONTROLLER="-out $(CURDIR)/artifacts/perf/controller $(FLAGS)" \
	  go -C tests test -count=1 -timeout 3h -v -run '^TestController$$' ./perf/controller \
	  | $(call saying,^--- PASS: TestController)

fuzz: ## Fuzz ids, parameters and records, FUZZ_TIME (100000x) runs for each target
	@targets=$$(git grep -oE '^func Fuzz[A-Za-z0-9_]+' -- 'src/*_test.go') || { echo 'there is no fuzz target' >&2; exit 1; }; \
	while IFS=: read -r file target; do \
	  go test -run '^$$' -fuzz "^$${target#func }\$$" -fuzztime $(FUZZ_TIME) "./$${file%/*}" | $(call saying,^fuzz: elapsed); \
	done <<<"$$targets"

##@ Build
.PHONY: build images generate clean
build: ## The shipped binaries, static, in bin/
	CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./src/driver ./src/mounter ./src/operator ./src/provisioner ./src/selftest

images: ## OCI images of both architectures, in artifacts/images
	go -C tools/images run . --version $(VERSION) --platforms linux/amd64,linux/arm64 --output $(CURDIR)/artifacts/images

generate: ## Write again what is generated: the CRD, deep copies, the tunnel's code, the chart's README, deploy/
	$(call tool,controller-gen) object paths=./src/api/...
	$(call tool,controller-gen) $(CRD) output:crd:stdout > charts/hostpath-provisioner/files/crd.yaml
	go -C tools run ./protogen $(CURDIR)/$(TUNNEL)/tunnel.proto
	$(call tool,helm-docs) $(HELM_DOCS)
	go -C tools run ./deploy -helm "$(call tool,helm4)"

clean: ## Remove bin/ and artifacts/; the cache of tools stays
	rm -rf bin artifacts

##@ Check
.PHONY: verify lint fmt
verify: lint ## Lint, workflows, scripts, YAML, docs, go.mod files and generated files: nothing is written
	@shellcheck=$(call tool,shellcheck); $(call tool,actionlint) -shellcheck "$$shellcheck"
	@git ls-files -z | xargs -0 grep -lIE '^#!.*[/ ](ba)?sh$$' | xargs -r $(call tool,shellcheck)
	@$(call tool,yamllint) --strict $$(git ls-files '*.yaml' '*.yml' ':!charts/*/templates/*')
	go -C tools run ./doccheck ..
	@for module in $(MODULES); do echo "go -C $$module mod tidy -diff"; go -C $$module mod tidy -diff; done
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(call tool,controller-gen) object $(CRD) output:object:dir="$$fresh" output:crd:dir="$$fresh"; \
	diff -u src/api/v1beta1/zz_generated.deepcopy.go "$$fresh/zz_generated.deepcopy.go" \
	  && diff -u charts/hostpath-provisioner/files/crd.yaml "$$fresh"/*.yaml \
	  || { echo 'the CRD or the deep copies are not what src/api/v1beta1 says: run `make generate`'; exit 1; }
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	go -C tools run ./protogen -out "$$fresh" $(CURDIR)/$(TUNNEL)/tunnel.proto; \
	for file in "$$fresh"/*; do diff -u "$(TUNNEL)/$${file##*/}" "$$file" \
	  || { echo 'the code of the tunnel is not what its .proto says: run `make generate`'; exit 1; }; done
	@$(call tool,helm-docs) $(HELM_DOCS) --dry-run --log-level error | diff -u charts/hostpath-provisioner/README.md - \
	  || { echo 'charts/hostpath-provisioner/README.md is not what values.yaml says: run `make generate`'; exit 1; }
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; go -C tools run ./deploy -helm "$(call tool,helm4)" -out "$$fresh"; \
	for file in "$$fresh"/*; do diff -u "deploy/$${file##*/}" "$$file" \
	  || { echo 'deploy/ is not what the chart renders: run `make generate`'; exit 1; }; done

lint: ## golangci-lint in each module
	@for module in $(MODULES); do echo "golangci-lint run in $$module"; (cd "$$module" && $(call tool,golangci-lint) run --allow-parallel-runners ./...); done

fmt: ## Apply the formatters
	@for module in $(MODULES); do (cd "$$module" && $(call tool,golangci-lint) fmt ./...); done
