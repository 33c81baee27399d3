# Everything a newcomer needs, by name. `make help` lists it.

CARGO ?= cargo
DIR ?= ./claystone-data

.DEFAULT_GOAL := help
.PHONY: help build up demo test fuzz neon s3-tests mount-tests nbd-tests volume-tests bench soak

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1 - /p' Makefile

build: ## build the program: target/release/claystone
	$(CARGO) build --release --package claystone

up: build ## build, and start a store in ./claystone-data (DIR=...)
	target/release/claystone up $(DIR)

demo: build ## store files, break disks, read everything back, repair
	target/release/claystone demo

test: ## all checks and tests; installs the clients that it tests with
	tests/skipped forget
	$(CARGO) xtask ci
	$(CARGO) build --package claystone
	tests/isal/run
	tests/klauspost/run
	tests/neon/run
	tests/jerasure/run
	tests/miri/run
	CLAYSTONE_BIN="$(CURDIR)/target/debug/claystone" tests/clients/run
	tests/python/run
	tests/mount/run --short
	tests/nbd/run --short
	CLAYSTONE_BIN="$(CURDIR)/target/debug/claystone" tests/volume/run --short
	tests/volume/soak --short
	tests/fuzz/run
	tests/skipped

fuzz: ## each fuzz target for FUZZ_SECONDS (60)
	tests/fuzz/run

neon: ## the code crate's kernels and long codes for aarch64, under qemu-user
	tests/neon/run

s3-tests: build ## the s3-tests suite of the Ceph project against a fresh store
	tests/s3-tests/run

mount-tests: ## pjdfstest, fsx, fio, git and SQLite on a mount of TREE (memory, memory-writeback, or a formatted disk)
	tests/mount/run $(or $(TREE),memory)

nbd-tests: ## libnbd, QEMU and fio on the NBD server
	tests/nbd/run

volume-tests: build ## the same clients on volumes of a store that is killed and loses disks
	CLAYSTONE_BIN="$(CURDIR)/target/release/claystone" tests/volume/run

bench: ## run bench/cases, append the figures to bench/runs
	$(CARGO) xtask bench

soak: ## a long drill of stores and disks, and property tests, from fresh seeds for CLAYSTONE_DRILL_SECONDS (600); then volumes under CLAYSTONE_SOAK_EVENTS (1000) kills and losses
	$(CARGO) xtask soak
	tests/volume/soak
