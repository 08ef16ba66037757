# make demo    profile two training steps of examples/gpt.py into profile_out/
# make test    everything that CI checks: lint, types, tests
# make lint    ruff and mypy alone
# make gpu-check [CASE="cnn cond"]    profile the cases of tests/cases on this machine's GPU and
#              print what was led to lines; again goes on where it stopped, named cases run anew
# make gpu-record [CASE="cnn cond"]   the same, and renew the recordings that CI replays
# make clean   remove what the others made
#
# Each sets up a virtual environment in $(VENV) first. `VENV=` uses $(PYTHON) as it is, without
# set-up or network: it must have the dependencies already. The gpu- targets never set anything
# up: $(PYTHON) must have a torch that knows the GPU, msgspec, numpy and pandas.

PYTHON ?= python3
VENV ?= .venv
OUT := profile_out
GPU_OUT ?= gpu_check
# A case takes half a minute; a command that may last ten starts none after these minutes.
GPU_MINUTES ?= 8
GPU_JOBS ?= 1

# One version for development; pyproject.toml declares the range that users may have.
TORCH := torch==2.13.0

ifeq ($(strip $(VENV)),)
RUN := $(PYTHON)
DEMO_READY :=
TEST_READY :=
else
RUN := $(VENV)/bin/python
DEMO_READY := $(VENV)/demo.stamp
TEST_READY := $(VENV)/test.stamp
endif

.PHONY: demo test lint gpu-check gpu-record clean

demo: $(DEMO_READY)
	$(RUN) -m profiler_ext run --force -o $(OUT) examples/gpt.py
	@echo
	@echo "see it:  $(OUT)/trace.pftrace   drop it on https://ui.perfetto.dev"
	@echo "         $(OUT)/report.html     open it in a browser"
	@echo "ask it:  $(RUN) -m profiler_ext report $(OUT) --by module"

test: lint
	$(RUN) -m pytest --durations=10

lint: $(TEST_READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

gpu-check:
	$(PYTHON) -m tests.cases --device cuda --minutes $(GPU_MINUTES) --jobs $(GPU_JOBS) --out $(GPU_OUT) $(CASE)

gpu-record:
	-$(PYTHON) -m tests.cases --device cuda --minutes $(GPU_MINUTES) --jobs $(GPU_JOBS) --out $(GPU_OUT) $(CASE)
	$(PYTHON) -m tests.cases.neutral $(GPU_OUT) $(CASE)

$(VENV)/demo.stamp: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet $(TORCH) --editable .
	touch $@

$(VENV)/test.stamp: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet $(TORCH) --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv $(OUT) $(GPU_OUT) build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
