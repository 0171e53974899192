# fsmq: what a developer does. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
ROOT ?= /tmp/mq
PORT ?= 8080
PREFIX ?= /usr/local
DESTDIR ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# The environment: first what fsmq itself needs, then the tools of its developers, too.
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
PROGRAMS := bin/mq bin/mq-mover bin/mq-reaper
# Tests wait for disks and timers more than they compute: three times as many processes as cores.
TESTERS := $(shell echo $$(($$(nproc 2>/dev/null || echo 2) * 3)))

export ROOT PORT PYTHON PREFIX DESTDIR
# Each of a thousand processes would compile all that it imports once more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12
	@echo
	@echo "Variables: PYTHON=$(PYTHON)  ROOT=$(ROOT) (of the spool)  PORT=$(PORT)"

.PHONY: dev
dev: $(READY) ## make the environment of developers in .venv (again only when pyproject.toml changes)

$(RUNS): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "fsmq needs Python 3.11 or later, and $(PYTHON) is not that."; \
	    echo "Name another: make PYTHON=/path/to/python3.12"; exit 1; } >&2
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "$(PYTHON) cannot make environments: its modules venv and ensurepip are missing."; \
	    echo "On Debian and Ubuntu: apt-get install python3-venv"; exit 1; } >&2
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install -e '.[server,client]'
	@touch $@

$(READY): $(RUNS)
	$(PIP) install -e '.[dev]'
	@touch $@

.PHONY: run
run: $(RUNS) ## start fsmq, show a message posted, fetched and deleted, do the main job
	@tests/tour.sh

.PHONY: stop
stop: ## stop what `make run` started
	@tests/tour.sh stop

# All tests where CI is set; else some of many cases, and what is long if it was changed.
SAMPLE := $(if $(CI),,--sample)

.PHONY: test
test: dev ## lint, types, then the tests: all of them with CI=1, else a sample
	@$(MAKE) --no-print-directory --output-sync -j2 SAMPLE=$(SAMPLE) types rewritten lint java
	$(BIN)/python -m pytest $(SAMPLE) -n $(TESTERS) --dist loadfile --no-loadscope-reorder --durations=15

# Each process of the tests would compile all of them otherwise. What cannot be imported they tell.
.PHONY: rewritten
rewritten: dev
	@$(BIN)/python -m pytest $(SAMPLE) --collect-only -qq >/dev/null || true

# No Spark, root, booted machine, power cut or long chain of crashes: rooms where a change shows first.
QUICK := tests/spool tests/client/test_verbs.py tests/client/test_topics.py \
    $(addprefix tests/http/test_,native.py queues.py post.py topics.py errors.py answers.py) \
    $(addprefix tests/test_,options.py house.py imports.py keys.py)

.PHONY: test-quick
test-quick: dev ## the tests to run after each change: no Spark, root or booted machine
	$(BIN)/python -m pytest --sample -n $(TESTERS) --dist loadfile -m "not slow" $(QUICK) \
	    --ignore-glob='tests/spool/test_crash*' --ignore-glob='tests/spool/test_*model*' \
	    --ignore=tests/spool/test_races.py

.PHONY: java
java: dev ## install Java, which Spark needs, where that can be done
	@$(BIN)/python -c 'from fsmq.pipeline.java import find_java; find_java()' 2>/dev/null || { \
	    [[ $$(id -u) == 0 ]] && command -v apt-get >/dev/null && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq default-jre-headless; } || \
	    echo "The tests of the pipeline will be skipped." >&2

.PHONY: lint
lint: dev ## check style, formatting, what is generated, and that no room imports one above it
	$(BIN)/ruff check . $(PROGRAMS)
	$(BIN)/ruff format --check . $(PROGRAMS)
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.harness.sync_code --check
	$(BIN)/python -m tests.harness.doc_tables --check

.PHONY: types
types: dev ## check types
	$(BIN)/mypy

.PHONY: format
format: dev ## put all code into its form
	$(BIN)/ruff check --fix . $(PROGRAMS)
	$(BIN)/ruff format . $(PROGRAMS)

.PHONY: sync
sync: dev ## make the code for threads again, in _sync, from that for coroutines, in _async
	$(BIN)/python -m tests.harness.sync_code

.PHONY: tables
tables: dev ## make the tables of docs/ again that tell what routes describe
	$(BIN)/python -m tests.harness.doc_tables

.PHONY: vendor
vendor: dev ## fetch the files of others again that the pages load, and check their sums (with npm)
	$(BIN)/python -m tests.harness.vendored

.PHONY: pictures
pictures: dev ## make the pictures of docs/dashboard.md again (with chromium)
	$(BIN)/python -m tests.http.ui.pictures

.PHONY: docs
docs: dev ## build the documentation site, and all of it in one document for paper
	$(BIN)/python -m website --pdf

.PHONY: soak
soak: dev java ## all that is long: power cuts, kills, crash states, interleavings, stories, requests (six hours)
	$(BIN)/python -m tests.soak.power
	$(BIN)/python -m tests.soak.interleavings
	$(BIN)/python -m tests.soak.stories
	$(BIN)/python -m tests.soak.mixed
	$(MAKE) soak-fuzz
	$(MAKE) soak-memory
	$(MAKE) soak-models
	$(BIN)/python -m tests.harness.real_input
	$(BIN)/python -m tests.soak.stream_kills
	$(BIN)/python -m tests.soak.writer_kills
	$(BIN)/python -m tests.soak.worker_kills
	$(BIN)/python -m tests.soak.job_kills
	$(BIN)/python -m tests.soak.spark_power

.PHONY: soak-nfs
soak-nfs: dev ## two hosts on real NFS in an emulated machine, as root (most of an hour)
	$(BIN)/python -m tests.soak.nfs

.PHONY: soak-cluster
soak-cluster: dev java ## Spark on hosts that mount the spool over sshfs, as root (20 minutes)
	$(BIN)/python -m tests.soak.cluster

.PHONY: sdks
sdks: dev ## test Amazon's clients in other languages, with packages fetched now, and Celery (five minutes)
	TEST_ALL=1 $(BIN)/python -m pytest -rs tests/sdks/sdks.py tests/http/sqs/test_celery.py

.PHONY: bench
bench: dev ## measure fsmq against the raw disk and other queues (more than an hour)
	$(BIN)/python -m benchmarks --write

.PHONY: day
day: dev ## play a day of work, kill the job journal meanwhile, compare its tables (ten minutes)
	$(BIN)/python -m tests.soak.day --kills --to build/day-$$(date +%s)

.PHONY: install
install: ## put fsmq on this machine: program, units, user (as root; DESTDIR, PREFIX)
	@systemd/install.sh

.PHONY: uninstall
uninstall: ## take it off again; spools and settings stay
	@systemd/install.sh uninstall

.PHONY: bundle
bundle: $(RUNS) ## make an archive in dist/ that installs without a network
	@PYTHON=$(BIN)/python systemd/bundle.sh

.PHONY: dist
dist: dev ## make the wheel, the source archive and the folder for an image, in dist/release
	@PYTHON=$(BIN)/python packaging/dist.sh

.PHONY: release
release: dev ## check, test and pack a release, and tag it; only the upload is left
	@PYTHON=$(BIN)/python packaging/release.sh

.PHONY: soak-fuzz
soak-fuzz: dev ## fuzz mq with a million requests (some 20 minutes)
	$(BIN)/python -m tests.soak.fuzz --requests 1000000

.PHONY: soak-memory
soak-memory: dev ## end requests badly, again and again, and weigh mq (an hour)
	$(BIN)/python -m tests.soak.memory
	$(BIN)/python -m tests.soak.memory --keys --tls --rounds 20

.PHONY: soak-waits
soak-waits: dev ## for how long one request holds up all others, in twenty tries; the machine must be quiet (half an hour)
	TEST_WAITS=20 TEST_ALL=1 $(BIN)/pytest -q -rA --timeout=6000 tests/http/test_loop.py tests/http/test_loop_forms.py

.PHONY: soak-models
soak-models: dev ## models, forms and races with examples that no other run has had (a quarter of an hour)
	TEST_ALL=1 $(BIN)/pytest -q --hypothesis-profile=random \
	    $$(grep -rlE "hypothesis|harness.rounds" tests --include='test_*.py')

.PHONY: clean
clean: ## remove the environment and whatever tools have left (stops fsmq first)
	@tests/tour.sh stop
	rm -rf $(VENV) .run build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
