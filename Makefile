# Two commands: `make demo` and `make test`. Each sets up what it needs; a second run does nothing twice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS ?= dev
CONSTRAINTS := .ci/constraints.txt
INSTALLED := $(VENV)/installed
# What the demo needs: no PyTorch, which is gigabytes where its CUDA build is the default.
DEMO_EXTRAS ?= eval
DEMO_INSTALLED := $(VENV)/demo-installed
IN_PARALLEL := --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-deep models clean help

help:
	@echo "make demo   set up, index the standard library's documentation, search it, evaluate"
	@echo "make test   set up, then ruff, mypy, import-linter and all tests"
	@echo "make test-deep  what is exhaustive: the tests marked deep"
	@echo "make clean  remove the environment and what was built"

demo: $(DEMO_INSTALLED)
	$(BIN)/vectorsearch demo

test: models
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(IN_PARALLEL)

test-deep: models
	$(BIN)/python -m pytest -m deep $(IN_PARALLEL)

models: $(INSTALLED)
	$(BIN)/vectorsearch models pull bge-small-en-v1.5-int8 ms-marco-MiniLM-L-12-v2-int8

$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	$(call install,$(EXTRAS))
	@touch $(DEMO_INSTALLED)

$(DEMO_INSTALLED): pyproject.toml $(CONSTRAINTS)
	$(call install,$(DEMO_EXTRAS))

define install
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[$(1)]' --constraint $(CONSTRAINTS)
	@touch $@
endef

clean:
	rm -rf $(VENV) build *.egg-info
