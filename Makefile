# Every target starts from nothing: the virtual environment is built on first use and rebuilt only when
# pyproject.toml or constraints.txt change. Needs Python 3.11 or newer with pip; uses uv when it is there.

PYTHON ?= python3
VENV   ?= .venv
BENCH  ?= .venv-bench
# One more than the cores of a small machine: a third of the time the tests wait for a disk or a server.
JOBS   ?= 3
KILLS  ?= 1000
EXAMPLES ?= 2000
ROUNDS ?= 2000
ARGS   ?=

UV := $(shell command -v uv 2>/dev/null)
RUN := $(VENV)/bin/python -m
READY := $(VENV)/.ready
BENCH_READY := $(BENCH)/.ready

# Pyright's wrapper would otherwise look on the network for a newer release of itself.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# Some machines forbid Python to keep what it has compiled: each of the hundreds of processes that the tests start would
# compile everything anew then, which takes longer than most of what they do.
unexport PYTHONDONTWRITEBYTECODE

# The servers that tests need come with the environment: one that is missing is a defect, never a skip.
export PERDURE_TEST_REQUIRE_SERVERS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test check fmt faces bench crash fuzz races clean

help:  ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## Build .venv with everything below (done by itself when needed)

demo: $(READY)  ## A run is killed, approved while nobody is alive, and goes on: 10 seconds
	@$(VENV)/bin/python examples/demo.py

test: $(READY)  ## Run the tests (ARGS="-k signal" to choose, JOBS=1 for one process)
	$(RUN) pytest -q -n $(JOBS) --dist worksteal $(ARGS)

check: $(READY)  ## Lint, format, types (mypy, pyright) and direction of imports; changes nothing
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy src examples $(wildcard tests/typing)
	$(if $(wildcard tests/typing),$(RUN) pyright --pythonpath $(VENV)/bin/python tests/typing)
	$(VENV)/bin/lint-imports --no-logo --no-cache

fmt: $(READY)  ## Format the code and mend what ruff can mend
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

faces: $(READY)  ## Write the types of app.sync and SyncClient anew, from the async verbs
	PYTHONPATH=src:tests $(RUN) synchronous.stubs

bench: $(BENCH_READY)  ## Measure throughput and latency, beside a peer (own environment: .venv-bench)
	$(BENCH)/bin/python -m benchmarks $(ARGS)

crash: $(READY)  ## Kill workers 1,000 times and check what survived (KILLS=n)
	PERDURE_CRASH_KILLS=$(KILLS) $(RUN) pytest -q --timeout 0 tests/crashes $(ARGS)

fuzz: $(READY)  ## Run the property tests with many more examples (EXAMPLES=n)
	PERDURE_FUZZ_EXAMPLES=$(EXAMPLES) $(RUN) pytest -q -n $(JOBS) --dist worksteal --timeout 0 -m hypothesis $(ARGS)

races: $(READY)  ## Let processes race on one store, 2,000 rounds of each pair (ROUNDS=n)
	PERDURE_RACE_ROUNDS=$(ROUNDS) $(RUN) pytest -q -n $(JOBS) --dist worksteal --timeout 0 tests/races $(ARGS)

clean:  ## Remove environments, caches and build output
	rm -rf .venv .venv-bench build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- environments --------------------------------------------------------------------------------

# $(call install,directory,extra): the package itself is editable, its dependencies are pinned. uv is only the
# quicker installer: where it cannot reach its index (it reads neither pip's settings nor, by default, the
# system's certificates), pip goes on.
WANTED = -c constraints.txt -e '.[$(2)]'
PIP_INSTALL = $(1)/bin/python -m pip install --quiet --disable-pip-version-check $(WANTED)
UV_INSTALL = $(UV) pip install --quiet --python $(1)/bin/python $(WANTED)
install = $(if $(UV),$(UV_INSTALL) || )$(PIP_INSTALL)

define build
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Perdure needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	@echo "building $(1) (once; about half a minute)"
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	@$(call install,$(1),$(2))
	@touch $@
endef

$(READY): pyproject.toml constraints.txt
	$(call build,$(VENV),dev)

$(BENCH_READY): pyproject.toml constraints.txt
	$(call build,$(BENCH),bench)
