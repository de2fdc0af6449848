# make course   the whole course on this machine: the book, a graded class, its feedback
# make test     every check
# make lab      JupyterLab on chapters/
# make setup    the environment alone; the three above call it first
# make clean    removes what can be made again; never course/, which holds people's grades
#
# PYTHON=python3.12        another interpreter
# PIP_ARGS='...'           passed on to pip, say for a CPU or a CUDA build of torch
# PYTEST_ARGS='...'        passed on to pytest, say PYTEST_ARGS='-k audit'

PYTHON ?= python3
PIP_ARGS ?=
PYTEST_ARGS ?=

# Every path is relative, so that the project may lie in a folder with a space in its name.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SAMPLE := _build/sample-course

# The cells start no thread of their own: two threads on two shared cores are slower than one.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
# Jupyter finds its kernels and programs in the environment, not in the caller's.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYTHONUNBUFFERED := 1

.DEFAULT_GOAL := help
.PHONY: help setup course test lab clean pictures

help:
	@sed -n 's/^# make/make/p' Makefile

setup: $(STAMP)
	@:

$(STAMP): requirements.txt constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Makefile: $(PYTHON) is missing or older than Python 3.11; install a newer one or name it: make PYTHON=python3.12" >&2; exit 1; }
	@echo "setup: making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "Makefile: $(PYTHON) has no venv module; install it (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo "setup: installing the pinned set into $(VENV); a few minutes the first time"
	@$(BIN)/python -m pip install --disable-pip-version-check $(PIP_ARGS) \
	  -r requirements.txt -c constraints.txt -e '.[maintain]'
	@touch $(STAMP)

course: setup
	@$(BIN)/autograder release --check
	@$(BIN)/autograder book
	@$(MAKE) --no-print-directory $(SAMPLE).txt
	@cat $(SAMPLE).txt
	@$(BIN)/autograder report $(SAMPLE)
	@echo
	@echo "read the book       _build/html/index.html"
	@echo "read a feedback     $(SAMPLE)/feedback/learner-mistake-1/"
	@echo "see the gradebook   cd $(SAMPLE) && ../../$(BIN)/jupyter lab   (menu Nbgrader, Formgrader)"

# The sample class is graded again when the grader, a chapter or a library changed; the file is what grading said.
$(SAMPLE).txt: $(STAMP) $(wildcard autograder/*.py autograder/*/*.py autograder/*/*/*.py solutions/*)
	@$(BIN)/autograder sample $(SAMPLE)
	@$(BIN)/autograder grade --yes $(SAMPLE) > $@.part || [ $$? -eq 3 ]   # one of them is made to be refused
	@$(BIN)/autograder feedback $(SAMPLE)
	@mv $@.part $@

# ruff and mypy first, which take seconds; then what the tests share; pytest last, so that its closing line is the last.
test: setup
	@$(BIN)/python tools/chromium.py
	@$(BIN)/python tools/bubblewrap.py
	@$(BIN)/ruff check autograder tests tools
	@$(BIN)/mypy
	@$(BIN)/autograder release --check
	@$(BIN)/autograder book
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

lab: setup
	@$(BIN)/jupyter lab chapters

pictures: setup
	@$(BIN)/python tools/pictures.py

clean:
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache $(VENV)
