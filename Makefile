# make demo    profile two training steps of examples/gpt.py into profile_out/
# make test    what to run before each commit: lint, types, the book, tests, of what is slow a sample (conftest.py)
# make verify  all tests and all of verification/, also on other Pythons, and the wheel: an hour
# make test-lines [LINES=--whole]    a sample of the tests of eager lines, or all of them, on each Python
#              of $(LINE_PYTHONS) that is installed, in .venv-3.12 and the like (5 GB each)
# make test-torch TORCH=2.14.1    the tests on another torch, in .venv-torch-2.14.1, which is made
#              first (5 GB with the CUDA libraries that PyPI's torch needs) and is yours to remove
# make faults [FAULTS="plain --only hooks --device cuda"]    plant a failure in each function of ours
#              that runs while a script trains, and see what it costs: about an hour of a core
#              for each script; a tenth of all with --each-once, each function in the first that calls it
# make names [NAMES="plain --only partitioner"]    train without each private name of torch that
#              is read, in turn, and see what it costs: half an hour for each script
# make lint    ruff, mypy and import-linter alone
# make fuzz [MINUTES=30] [SEED=0]    read mutations of the recorded sessions for so long; every
#              one must be read or refused in a sentence
# make oracle [ORACLE="--seed 17 --models 1"]   draw random models, and compare the lines of their
#              kernels with the constants in the generated code; every one must be right
# make eager-oracle [EAGER_ORACLE="--launches 20000 --seed 0 --device cuda"]    run random eager
#              programs, and compare the line of each launch with the shapes that its op worked on;
#              every one must be right; on .venv-3.12, which test-lines makes
# make truth [TRUTH="cells Mixtral --seed 1"]    run models eagerly, and compare where each ATen op ran,
#              forward and backward, with the line and module that capture claims for each node of their
#              graphs; no claim may be contradicted. Models made by hand, and those of transformers;
#              --random 200 judges random programs instead, --settings names settings of torch's
#              other than its defaults, --device cuda a GPU
# make flaws [FLAWS="--only boolean_mask --out out/flaws"]    on a GPU, run flaws of public material and
#              compare the recommendations with what remedying each flaw gains (verification/flaws);
#              --tuned runs steps at their best settings, of which nothing large may be claimed, and
#              --tuned --remedied what is claimed of them
# make fusions [FUSIONS="--only stencil --out out/fusions"]    on a GPU, time steps with a missed fusion
#              and the same without it, and compare that with what the finding says (verification/fusions)
# make serving [SERVING="sglang --out out/serving"]    compile a small model as an engine does, and compare the
#              lines and layers of its pieces with the order that they run in (verification/serving)
# make memory-prices [PRICES="--only gpt_loss --out out/prices"]   on a GPU, bytes and time that memory
#              recommendations claim, against the edited program (verification/memory_prices);
#              --set mended or unfitted, other models; --try by profiler-ext try
# make memory-peaks [PEAKS="--gpus 4 --jobs 4 --minutes 9"]   on a GPU, the peaks of forty
#              programs beside the allocator's, and what of them is named; --cases streams, CUDA graphs,
#              allocators, DDP, FSDP (verification/memory_peaks)
# make replays [REPLAYS="--only training --out out/replays"]   on a GPU, kernels that a program's own CUDA
#              graphs replay, against the same step without a graph (verification/replays);
#              with --tiny on the CPU, where captures are real and launches are simulated
# make inside-truth QUESTION=planted [INSIDE="--minutes 9 --gpus 4 --out out/inside"]   on a GPU, what is
#              said of the inside of kernels, against a program without the line (planted), Nsight Compute
#              (ncu), the cost model (model) and profile(inside=...) (verification/inside); goes on again
# make mutants [ROOM=lineage] [MUTANTS="--count 320 --seed 0"]    change our rules in so many places,
#              one at a time, and list what no test notices (docs/mutants.md); ROOM is `lineage` or
#              `attribution`, MUTANTS=--again tries the survivors once more. Half an hour
# make gpu-check [CASE="cnn cond"]    profile the cases of tests/cases on this machine's GPU and
#              print what was attributed to lines; again goes on where it stopped, named cases run again
# make gpu-record [CASE="cnn cond"]   the same, and renew the recordings that CI replays
# make gold [CASE="cnn cond"]   renew the gold files, which say row for row what the recordings show
#              (tests/fixtures/h200/gold), and print what changed in them
# make programs [WORDS="forks signals"]   run programs without us and with us, and compare
# make bench [BENCH="--only growth"]    measure how fast all is, beside the peers (.venv-peers, made
#              first: 0.6 GB), and print a table: an hour and a half of one core
#              (benchmarks/README.md); with BENCH="--part 50" ten minutes, to see that it runs
# make bench-compare BASE=main [COMPARE="--pairs 20"]    is anything slower than at that commit, by
#              how much, and how sure is it: ten minutes of one core; fetches nothing
# make docs    the book of docs/ into site/; a link that leads nowhere fails
# make examples    write what the commands in the book print now into its pages
# make pictures    the pictures of the book again, from its recordings; needs Chromium, and for the
#                  diagrams MERMAID=FILE, the dist/mermaid.min.js of npm
# make reference  write the pages of docs that the lists in the code make: gaps, evidence, ...
# make wheel [WHEEL=all]    build the package and check it; with WHEEL=all install it into an empty
#              environment, alone and with each extra alone (hours of downloads, once)
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
MINUTES ?= 30
SEED ?= 0
# Test files run side by side; each process holds a torch.
TEST_JOBS ?= 2
# uv leaves it to Python to compile what it installed: unkept, each process compiles torch again (7 s).
unexport PYTHONDONTWRITEBYTECODE

# One version for development; pyproject.toml declares the range that users may have.
DEV_TORCH := torch==2.13.0
TORCH_VENV := .venv-torch-$(TORCH)
# Those whose sys.monitoring tells lines.
LINE_PYTHONS := 3.12 3.13

ifeq ($(strip $(VENV)),)
RUN := $(PYTHON)
DEMO_READY :=
TEST_READY :=
else
RUN := $(VENV)/bin/python
DEMO_READY := $(VENV)/demo.stamp
TEST_READY := $(VENV)/test.stamp
endif
# uv installs into several environments what it fetched and unpacked once.
INSTALL := -m pip install --quiet uv && $(RUN) -m uv pip install --quiet

.PHONY: demo test verify test-lines lines-ready test-torch faults names fuzz oracle eager-oracle truth flaws fusions memory-prices memory-peaks replays serving inside-truth mutants programs bench peers bench-compare reference docs examples pictures wheel lint gpu-check gpu-record gold clean

demo: $(DEMO_READY)
	$(RUN) -m profiler_ext run --force -o $(OUT) examples/gpt.py
	@echo
	@echo "in the browser:   $(RUN) -m profiler_ext open $(OUT)"
	@echo "on a timeline:    $(RUN) -m profiler_ext open $(OUT) --perfetto"
	@echo "by module:        $(RUN) -m profiler_ext report $(OUT) --by module"

test: lint docs
	$(RUN) -m pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder --durations=10

verify: $(TEST_READY) wheel
	$(RUN) -m pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder --whole
	$(MAKE) --no-print-directory test-lines LINES=--whole

ifeq ($(strip $(VENV)),)
lines-ready:

test-lines:
	@echo "nothing is set up: the tests of eager lines ran on this Python, if it tells lines"
else
lines-ready:
	@for version in $(LINE_PYTHONS); do .ci/lines $$version $(DEV_TORCH) || exit 1; done

test-lines: lines-ready
	@for version in $(LINE_PYTHONS); do \
	.ci/lines $$version $(DEV_TORCH) $(TEST_JOBS) $(LINES) || exit 1; done
endif

test-torch:
	@test -n "$(TORCH)" || { echo "say which torch: make test-torch TORCH=2.14.1"; exit 2; }
	test -d $(TORCH_VENV) || $(PYTHON) -m venv $(TORCH_VENV)
	$(TORCH_VENV)/bin/python -m pip install --quiet torch==$(TORCH) --editable '.[dev]'
	$(TORCH_VENV)/bin/python -m pytest; status=$$?; \
	echo "when you are done with this torch:  rm -rf $(TORCH_VENV)"; exit $$status

faults: $(TEST_READY)
	$(RUN) -W ignore -m verification.faults $(FAULTS)

names: $(TEST_READY)
	$(RUN) -W ignore -m verification.faults.names $(NAMES)

wheel: $(TEST_READY)
	PYTHON=$(RUN) .ci/wheel $(or $(WHEEL),cheap) $(DEV_TORCH)

docs: $(TEST_READY)
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet --clean

examples: $(TEST_READY)
	$(RUN) -m tests.book

pictures: $(TEST_READY)
	$(RUN) -m tests.book.pictures $(PICTURES)

reference: $(TEST_READY)
	$(RUN) -m tests.reference

lint: $(TEST_READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()' --no-logo --no-cache

fuzz: $(TEST_READY)
	$(RUN) -m verification.hostile --jobs $(TEST_JOBS) --minutes $(MINUTES) --seed $(SEED)

oracle: $(TEST_READY)
	$(RUN) -W ignore -m verification.oracle $(ORACLE)

eager-oracle:
	.venv-3.12/bin/python -W ignore -m verification.eager_oracle $(EAGER_ORACLE)

truth: $(TEST_READY)
	$(RUN) -W ignore -m verification.truth $(TRUTH)

flaws:
	$(PYTHON) -m verification.flaws $(FLAWS)

fusions:
	$(PYTHON) -m verification.fusions $(FUSIONS)

serving:
	$(PYTHON) -m verification.serving $(SERVING)

memory-prices:
	$(PYTHON) -m verification.memory_prices $(PRICES)

memory-peaks:
	$(PYTHON) -m verification.memory_peaks $(PEAKS)

replays:
	$(PYTHON) -m verification.replays $(REPLAYS)

inside-truth:
	@test -n "$(QUESTION)" || { echo "say what: make inside-truth QUESTION=planted"; exit 2; }
	$(PYTHON) -W ignore -m verification.inside $(QUESTION) $(INSIDE)

mutants: $(TEST_READY)
	$(RUN) -m verification.mutants $(ROOM) $(MUTANTS)

gpu-check:
	$(PYTHON) -m tests.cases --device cuda --minutes $(GPU_MINUTES) --jobs $(GPU_JOBS) --out $(GPU_OUT) $(CASE)

gpu-record:
	-$(PYTHON) -m tests.cases --device cuda --minutes $(GPU_MINUTES) --jobs $(GPU_JOBS) --out $(GPU_OUT) $(CASE)
	$(PYTHON) -m tests.cases.neutral $(GPU_OUT) $(CASE)
	$(PYTHON) -m tests.gold

gold: $(TEST_READY)
	$(RUN) -m tests.gold $(CASE)

programs: $(TEST_READY)
	$(RUN) -m verification.programs $(WORDS)

ifneq ($(strip $(VENV)),)
bench: peers
endif
bench: $(TEST_READY)
	$(RUN) -m benchmarks.bench $(BENCH)

peers: $(TEST_READY)
	$(RUN) -m benchmarks.environments

bench-compare: $(TEST_READY)
	@test -n "$(BASE)" || { echo "say since when: make bench-compare BASE=main"; exit 2; }
	$(RUN) -m benchmarks.compare $(BASE) $(COMPARE)

$(VENV)/demo.stamp: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(RUN) $(INSTALL) $(DEV_TORCH) --editable .
	touch $@

$(VENV)/test.stamp: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(RUN) $(INSTALL) $(DEV_TORCH) --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-torch-* .venv-3.* .venv-peers site $(OUT) $(GPU_OUT) mutants build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
