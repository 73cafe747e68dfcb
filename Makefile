# A laptop stack without Docker, system Java or root: Python 3.11+ and make are enough.
#   make up          OpenSearch, S3/SQS/DynamoDB (moto) and Ray on loopback; kept if already up
#   make backfill    up, then index a set of sample documents (SOURCE=folder for your own, CORPUS=slice|full)
#   make down        end the stack        make clean   also remove its data (downloads stay)
#   make doctor      what this machine lacks            make check test    make bench (BENCH=large: 20,000 chunks)
#   make scenarios   bug reports as inputs, each with its right outcome (DIR=folder, ONLY=slug)
# TORCH=cpu installs PyTorch without the CUDA libraries. OPENSEARCH_URL, AWS_ENDPOINT_URL and LEDGER_URL name servers of your
# own to be used instead. MIRROR=1 with SOURCE deletes what is gone from the folder. LEDGER=postgres, OPENSEARCH=3.

SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
CORPUS ?= slice
SOURCE ?=
QUERY ?= how do I find out where memory leaks
VENV := .venv
# what was chosen at the first install stays, so that a later `make` without TORCH does not fetch CUDA after all
TORCH ?= $(or $(patsubst $(VENV)/.installed-%,%,$(firstword $(wildcard $(VENV)/.installed-*))),cuda)
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
INSTALLED := $(VENV)/.installed-$(TORCH)

# without cached bytecode every process of Ray compiles its libraries again
unexport PYTHONDONTWRITEBYTECODE
# read by the shell from the environment, so that quotes and blanks in them stay what they are
export SOURCE QUERY

.PHONY: help up down clean backfill test bench scenarios doctor check status

help:
	@sed -n 's/^#   //p' Makefile

up: $(INSTALLED)
	@$(PY) -m local up

down:
	@test ! -x $(PY) || $(PY) -m local down

clean:
	@test ! -x $(PY) || $(PY) -m local clean

status:
	@test ! -x $(PY) || $(PY) -m local status

doctor: $(INSTALLED)
	@$(PY) -m local doctor
	@test ! -f .local/env || { source .local/env && $(PY) -m jobs doctor; }

backfill: up
	@source .local/env && \
	  $(PY) -m local.corpus $(if $(SOURCE),--source "$$SOURCE",--corpus $(CORPUS)) $(if $(MIRROR),--mirror) && \
	  { $(PY) -m jobs submit -- backfill --config "$$INGEST_CONFIG" --report "$(CURDIR)/.local/report.json" || code=$$?; \
	    case $${code:-0} in 0) ;; 3) echo "exit code 3: not every document is served; the report says which and why";; \
	      *) exit $$code;; esac; } && \
	  echo && $(PY) -m jobs search "$$QUERY"

test: $(INSTALLED)
	@$(PY) -m pytest tests

bench: $(INSTALLED)
	@$(PY) -m tests.bench

# a folder of cases: inputs with the right outcome, and faults as steps
scenarios: $(INSTALLED)
	@$(PY) -m tests.scenarios $(if $(DIR),"$(DIR)") $(if $(ONLY),--only $(ONLY))

check: $(INSTALLED)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

# Everything by hash: uv itself with pip, the lock with uv, then this project without a build environment of its own.
.venv: $(INSTALLED)

$(INSTALLED): pyproject.toml requirements/lock.txt requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 …")'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@$(if $(filter cpu,$(TORCH)),$(install_cpu),$(install_locked))
	@$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@$(PY) -c 'import jobs.backfill, openvino'  # compiled here once, not by all processes of the first job at the same time
	@rm -f $(VENV)/.installed-*; touch $@

install_locked = $(UV) pip install --quiet --python $(PY) --require-hashes -r requirements/lock.txt

# PyTorch's CPU wheels have a version suffix and hashes of their own, so the lock cannot hold them: the rest comes from the
# lock by hash, and PyTorch in the locked version from the index that uv knows for this backend.
install_cpu = mkdir -p .local && \
	  awk '/^[a-z0-9]/ {skip = /^(torch|triton|nvidia-|cuda-)/} !skip' requirements/lock.txt > .local/lock-without-torch.txt && \
	  $(UV) pip install --quiet --python $(PY) --no-deps --require-hashes -r .local/lock-without-torch.txt && \
	  $(UV) pip install --quiet --python $(PY) --torch-backend cpu "$$(sed -n 's/^\(torch==[^ ;]*\).*/\1/p' requirements/lock.txt)"
