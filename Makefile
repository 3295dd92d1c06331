# Everything a developer types; `make` alone prints the list. What a target does is in the Go program or the test it names.
# Tools are built from tools/ at pinned versions and stay outside the clone, in $HPP_CACHE (default ~/.cache/hostpath-provisioner).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Debian gives only root a path with mkfs in it.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin
# Without paths in them, what one clone has compiled and tested is there for the next.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath)

MODULES := . tests tools tools/images
ROOT := github.com/hostpath-provisioner/hostpath-provisioner
# What `make test` may take from Go's cache of results: the tests of the root module that touch no device, mount nothing
# and start no program. These do, so they run every time, as do those of the other modules, which read files outside of
# theirs and start what they build from here. TestDevicesAreNotCached holds the list.
DEVICES := $(addprefix src/,driver/internal/app driver/internal/disk driver/internal/pool driver/internal/volume \
  driver/internal/guard driver/internal/quota driver/internal/transfer internal/kernel/bindmount internal/kernel/btrfs \
  internal/kernel/copytree internal/kernel/copytree/usage internal/kernel/mounts internal/kernel/openat \
  internal/kernel/projectquota mounter/internal/app mounter/internal/claim legacyprovisioner/internal/app \
  legacyprovisioner/internal/everynode/manager legacyprovisioner/internal/hostpath legacyprovisioner/internal/networkfs)
no_devices = grep -vxF $(addprefix -e $(ROOT)/,$(DEVICES))
# What serves many at a time on nodes and in the controller. The operator's races are looked for at night: with what it
# imports, the race detector compiles for minutes.
RACING := $(patsubst %,./src/%/...,driver controller internal mounter legacyprovisioner)
# Crashes at every step, and trees of 100,000 files: one goroutine, for minutes with the race detector. They run without.
MATRIX_TESTS := CrashAtEveryStep CrashDuringRecovery ErrorAtEveryStep AskedAgainThenPowerCut RandomLives \
  TheServerCrashesAtEveryStep EnforcedCrashes EnforcedLives CopyErrors CopyingByFileCrashes CopyingByFileErrors \
  Nested Wide Bushy ADeepTreeIsPurged
MATRICES := ^Test($(subst $(eval ) ,|,$(strip $(MATRIX_TESTS))))$$
MATRIX_PACKAGES := $(addprefix ./src/driver/internal/,volume disk pool)
# What the chart's appVersion says is what the binaries say.
VERSION := $(shell sed -n 's/^appVersion: *"\{0,1\}\([^"]*\)"\{0,1\}/\1/p' charts/hostpath-provisioner/Chart.yaml)
LDFLAGS := -s -w -X github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo.version=$(VERSION)
# Runs, not seconds: with a time, go test now and then calls its end a failure.
FUZZ_TIME ?= 100000x
# On each filesystem; nightly it is 30. A cut takes about a minute.
POWER_CUTS ?= 1
POWER_TIMEOUT ?= 6h
E2E_TIMEOUT ?= 75m
TIMINGS ?= $(CURDIR)/artifacts/timings
E2E_TOOLS := mkfs.btrfs
UNIT_TOOLS := gcc fio mkfs.ext4 mkfs.xfs mkfs.btrfs
VM_TOOLS := qemu-system-x86_64 modprobe mkfs.ext4 mkfs.xfs mkfs.btrfs
HELM_DOCS := --chart-search-root charts --template-files ./../tools/helm-docs/README.md.gotmpl

TUNNEL := src/internal/nodeapi/wire
CRD := crd:allowDangerousTypes=true,maxDescLen=250 paths=./src/api/...

# Shell words that show what a command prints and fail unless a line matches: go test is content with no test.
saying = tee >(cat >&2) | grep '$(1)' >/dev/null

# Shell words that test in a module, 1, what 2 says, show what go test shows and keep each test's seconds in $(TIMINGS).
# 3 is a part of the target. Vet is golangci-lint's.
gotest = env -C $(1) $(call tool,gotestsum) --no-color --hide-summary=skipped \
  --format standard-$(if $(findstring -v ,$(2)),verbose,quiet) \
  --jsonfile-timing-events $(TIMINGS)/$@$(addprefix -,$(3)).json -- -vet=off $(2)

# Shell words that make targets, 1, one after the other, also after one has failed, and say what each took.
one_after_another = mkdir -p $(TIMINGS); failed=0; for target in $(1); do begin=$$SECONDS; how=passed; \
  echo "$$(date +%T) make $$target"; $(MAKE) --no-print-directory "$$target" || { how=FAILED; failed=1; }; \
  echo "make $$target: $$((SECONDS - begin)) s, $$how" | tee -a $(TIMINGS)/targets.txt; done; exit $$failed

# Shell words that make the targets of 1 beside those of 2, and end with what each took and the ten slowest tests.
lanes = rm -rf $(TIMINGS); failed=0; begin=$$SECONDS; \
  $(MAKE) --no-print-directory -k -j2 -O computes waits COMPUTES="$(1)" WAITS="$(2)" || failed=1; \
  echo; cat $(TIMINGS)/targets.txt; echo "make $@: $$((SECONDS - begin)) s"; echo; \
  echo 'The ten slowest tests (all are in $(TIMINGS)):'; \
  grep -hv '"Test":"[^"]*/' $(TIMINGS)/*.json | $(call tool,gotestsum) tool slowest --num 10; exit $$failed

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
.PHONY: check test test-nightly deps deps-cluster deps-tests test-unit test-crash test-sanity test-quota-vm test-power test-external chart-test test-api e2e e2e-nightly perf perf-controller fuzz
check: ## While you work: lint and tests of the modules that differ from main, as far as Go's cache does not know them
	@go -C tools run ./install $(UNIT_TOOLS) >/dev/null
	@base=$$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD); \
	changed=$$(git diff --name-only "$$base"; git ls-files --others --exclude-standard); \
	differs() { grep -qE "$$1" <<<"$$changed"; }; \
	check() { echo "check $$1"; (cd "$$1" && $(call tool,golangci-lint) run --allow-parallel-runners ./...) & \
	  go -C "$$1" test -vet=off "$${@:2}" | (grep -v 'no test files' || true); wait $$!; }; \
	if differs '^(src|charts)/|^go\.'; then check . ./...; fi; \
	if differs '^tests/'; then check tests ./internal/... ./cluster/... ./external ./perf/internal/...; fi; \
	if differs '^tools/images/'; then check tools/images ./...; fi; \
	if differs '^tools/([^i]|install)'; then check tools ./...; fi

test: deps-cluster ## All of it, as CI runs it: what computes beside what waits; each test's seconds go to artifacts/timings
	@$(call lanes,deps-tests verify test-api test-unit test-quota-vm test-sanity test-power chart-test,e2e)

test-nightly: export HPP_E2E := nightly
test-nightly: export POWER_CUTS := 30
test-nightly: deps-cluster ## What is too slow for every change: all features, Kubernetes' own tests, 30 power cuts, more crashes, fuzzing, NFS, 500 nodes
	@$(call lanes,deps-tests test-crash test-quota-vm test-nfs test-power fuzz,e2e-nightly test-external perf-controller)

.PHONY: computes waits
computes: ; +@$(call one_after_another,$(COMPUTES))
waits: ; +@$(call one_after_another,$(WAITS))

deps: deps-cluster deps-tests ## Install and compile what the tests need, so that no test's time pays for it (root; 25 minutes, the first time)

deps-cluster: ## … what a kind cluster and the tests on it need
	@go -C tools run ./install helm3 helm4 ct mkfs.btrfs >/dev/null
	go -C tests run ./cluster assets csi-provisioner csi-resizer csi-snapshotter snapshot-controller local-path-provisioner node-image
	@images=$$(mktemp -d); trap 'rm -rf "$$images"' EXIT; go -C tools/images run . --output "$$images" >/dev/null
	go -C tests list -test -export ./e2e >/dev/null

deps-tests: ## … what all the others need
	@go -C tools run ./install -all >/dev/null
	go -C tests run ./cluster assets control-plane cert-manager vm-kernel
	CGO_ENABLED=1 go list -race -test -export $(RACING) >/dev/null
	@for module in $(MODULES); do echo "go -C $$module list -test -export ./..."; go -C $$module list -test -export ./... >/dev/null; done

test-unit: ## Unit and crash tests of every module, with the race detector on what ships and is concurrent
	@go -C tools run ./install $(UNIT_TOOLS) >/dev/null
	$(call gotest,.,-count=1 -run '$(MATRICES)' $(MATRIX_PACKAGES),crashes)
	CGO_ENABLED=1 $(call gotest,.,-race -count=1 -skip '$(MATRICES)' $(addprefix ./,$(DEVICES)),devices)
	CGO_ENABLED=1 $(call gotest,.,-race $$(go list $(RACING) | $(no_devices)),racing)
	$(call gotest,.,$$(go list ./... | $(no_devices) | grep -vxF "$$(go list $(RACING))"),others)
	$(call gotest,tools,-count=1 ./...,tools)
	$(call gotest,tools/images,-count=1 ./...,images)
	$(call gotest,tests,-count=1 ./internal/... ./cluster/... ./external ./perf/...,tests)

test-crash: export HPP_CRASH_SEEDS := 50
test-crash: ## Every interruption of every operation, with 50 random crashes for each; the disk in memory at length (root)
	@go -C tools run ./install $(UNIT_TOOLS) >/dev/null
	$(call gotest,.,-count=1 -timeout 60m -run '$(MATRICES)' $(MATRIX_PACKAGES),crashes)
	CGO_ENABLED=1 $(call gotest,.,-race -count=3 -timeout 40m -skip '$(MATRICES)' ./src/driver/... ./src/controller/...,race)
	CGO_ENABLED=1 $(call gotest,.,-race ./src/operator/...,operator)
	$(call gotest,.,-count=1 -timeout 30m ./src/driver/internal/disk -rapid.checks=20000,disk)

test-sanity: ## csi-sanity against the built driver's socket, on each filesystem that the kernel has (root)
	@go -C tools run ./install mkfs.ext4 mkfs.xfs mkfs.btrfs >/dev/null
	$(call gotest,tests,-count=1 -timeout 20m ./sanity/...)

test-quota-vm: ## Project quota on XFS and ext4, csi-sanity on it too, in a VM with Debian's kernel (qemu, no KVM needed)
	@go -C tools run ./install $(VM_TOOLS) >/dev/null
	$(call gotest,tests,-count=1 -timeout 30m -skip '^Test(PowerCuts|NFS)$$' ./vm)

test-power: ## Cut the power of that VM POWER_CUTS (1) times on each of XFS, ext4 and btrfs, and look at the disk
	@go -C tools run ./install $(VM_TOOLS) >/dev/null
	HPP_POWER_CUTS=$(POWER_CUTS) $(call gotest,tests,-count=1 -timeout $(POWER_TIMEOUT) -v -run '^TestPowerCuts$$' ./vm) \
	  | $(call saying,^--- PASS: TestPowerCuts)

test-nfs: ## A pool that two drivers share over NFS, in a VM whose kernel serves and mounts it (nightly)
	@go -C tools run ./install $(VM_TOOLS) >/dev/null
	$(call gotest,tests,-count=1 -timeout 30m -v -run '^TestNFS$$' ./vm) | $(call saying,^--- PASS: TestNFS)

chart-test: ## Chart: lint, render into the real types, server-side dry run, Helm 3 and 4
	@go -C tools run ./install helm3 helm4 ct promtool >/dev/null
	@go -C tests run ./cluster assets >/dev/null
	$(call gotest,tests,-count=1 -timeout 20m ./chart ./chart/apiserver)

# The longest package first: the others then run beside it.
test-api: ## Operator, custom resource, certificates, legacy provisioners on a real API server without nodes
	@go -C tools run ./install helm3 helm4 >/dev/null
	@go -C tests run ./cluster assets control-plane cert-manager >/dev/null
	$(call gotest,tests,-count=1 -timeout 20m -p 2 ./api/operator ./api/controller ./api/everynode ./api/...)

e2e: ## Features on a kind cluster of their own (hpp-e2e), which is removed afterwards; then chart-testing's installations
	@go -C tools run ./install helm3 helm4 ct $(E2E_TOOLS) >/dev/null
	$(call gotest,tests,-count=1 -timeout $(E2E_TIMEOUT) -v ./e2e/...)

e2e-nightly: export HPP_E2E := nightly
e2e-nightly: E2E_TIMEOUT = 3h
e2e-nightly: E2E_TOOLS += jq rsync
e2e-nightly: plugin e2e ## The same, and the features that are too slow for every change

test-external: ## Kubernetes' own tests of storage, on a kind cluster of their own (FLAGS="-focus subPath -keep": some, and leave it)
	@go -C tools run ./install helm4 mkfs.btrfs >/dev/null
	go -C tests run ./external -out $(CURDIR)/artifacts/external $(FLAGS)

perf: ## Measure (root, an hour and a half); the report goes to artifacts/perf, with its rounds for benchstat
	@go -C tools run ./install benchstat fio helm4 mkfs.ext4 mkfs.xfs mkfs.btrfs >/dev/null
	go -C tests run ./perf -out $(CURDIR)/artifacts/perf

perf-controller: ## Measure the controller with 500 simulated nodes (root, a quarter of an hour; FLAGS="-nodes 20 -volumes 200": fewer)
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
.PHONY: build images plugin generate clean
build: ## The shipped binaries, static, in bin/
	CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/ ./src/driver ./src/controller ./src/mounter ./src/operator ./src/legacyprovisioner ./src/selftest ./src/kubectl-hpp

images: ## OCI images of both architectures, in artifacts/images
	go -C tools/images run . --version $(VERSION) --platforms linux/amd64,linux/arm64 --output $(CURDIR)/artifacts/images

plugin: ## `kubectl hpp` for Linux, macOS and Windows, amd64 and arm64, with krew's manifest, in artifacts/plugin
	go -C tools/images run . plugin --version $(VERSION) --output $(CURDIR)/artifacts/plugin

generate: ## Write again what is generated: the CRD, deep copies, the chart's schema of a pool, its README, the tunnel's code, deploy/
	$(call tool,controller-gen) object paths=./src/api/...
	$(call tool,controller-gen) $(CRD) output:crd:stdout > charts/hostpath-provisioner/files/crd.yaml
	go -C tools run ./chartschema
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
	@fresh=$$(mktemp); trap 'rm -f "$$fresh"' EXIT; go -C tools run ./chartschema -out "$$fresh"; \
	diff -u charts/hostpath-provisioner/values.schema.json "$$fresh" \
	  || { echo 'values.schema.json has not the pools of files/crd.yaml: run `make generate`'; exit 1; }
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
