# make demo | check | test | test-long | test-slow | test-forms | test-lowest | test-newest | test-devices | mutants
# make lint | docs | site | history | gallery | paper | bench | dist | tagged | clean
# PYTHON chooses the interpreter (3.11 to 3.14); VENV the environment's folder.

SHELL := /bin/bash
VENV ?= .venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info[:2] < (3, 15)))' >/dev/null 2>&1 && { echo $$p; break; }; done)
UV_VERSION := 0.12.24
TWINE_VERSION := 7.0.0
BIN := $(VENV)/bin
UV := VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet -c constraints.txt
# compiled programs are kept between runs: the second run starts at once
export JAX_COMPILATION_CACHE_DIR ?= $(abspath .cache/jax)
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES ?= -1
# and so is Python's bytecode, also where a container says otherwise: it halves the start
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo check smoke test test-long test-slow test-forms test-loops test-xla test-pallas test-lowest test-newest \
	test-devices mutants lint docs site history notebooks gallery paper bench dist tagged clean
.DEFAULT_GOAL := demo

# One stamp for each set of packages: nothing is fetched again until a pin changes.
$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "mrsa_jax needs Python 3.11, 3.12, 3.13 or 3.14 on the path; name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/.made
	$(UV) -e .
	@$(BIN)/python -m compileall -q -j 0 -x '/tests?/|/pip/|/setuptools/|/lexers/' $(VENV)/lib mrsa_jax watch || true
	@touch $@

$(VENV)/.test: pyproject.toml papers/pyproject.toml constraints.txt | $(VENV)/.made
	$(UV) -e '.[test]' -e ./papers
	@touch $@ $(VENV)/.run

# byte code is kept whatever the environment says: each command would pay seconds for it anew;
# made by all cores beforehand, since the first command would make it by one before it shows anything
demo: $(VENV)/.run
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/mrsa-jax demo

# two workers: most tests compile and compute on one core
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

# while you write: the style, and a case by hand and one against an oracle from each family
check: $(VENV)/.test
	$(MAKE) -j 2 lint smoke
smoke: $(VENV)/.test
	$(BIN)/python -m pytest -q -m smoke

# a test of it may cost a processor second with empty caches: what costs more is named, far more fails
test: $(VENV)/.test
	$(PYTEST) --costs

# the tests marked `long`: dear oracles, notebooks, the site, how-to pages, commands as processes;
# those of the kernels with programs as users get them, all others with programs made quickly
LONG := -m "long and not slow" --durations=20
KERNELS := $(addprefix tests/,modular quantize secagg/test_ring_sum.py test_quick_programs.py \
	$(addprefix hetero/test_,average.py coding.py robust.py))
test-long: $(VENV)/.test
	MRSA_JAX_OPTIMISED=1 $(PYTEST) $(LONG) $(KERNELS)
	$(PYTEST) $(LONG) $(KERNELS:%=--ignore=%)

test-slow: $(VENV)/.test
	MRSA_JAX_OPTIMISED=1 $(BIN)/python -m pytest -m slow

# the suite once in each form of what has several; one of them: make test-pallas
FORMS := loops xla pallas
test-forms: $(FORMS:%=test-%)
$(FORMS:%=test-%): test-%: $(VENV)/.test
	MRSA_JAX_FORM=$* $(PYTEST) -m "not slow" --durations=40

# a good part of the suite with the lowest versions that pyproject.toml allows, on the oldest Python
LOWEST := $(VENV)-lowest
LOWEST_TESTS ?= tests/cli tests/study tests/contracts tests/dp tests/live tests/plotting --ignore=tests/live/flower
LOWEST_UV := VIRTUAL_ENV=$(abspath $(LOWEST)) $(BIN)/uv pip install --quiet
TOOLS := beartype google-crc32c hypothesis mpmath psutil pytest pytest-xdist
test-lowest: $(VENV)/.made
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(LOWEST_UV) --resolution lowest-direct -e '.[dask]' -e ./papers
	$(LOWEST_UV) $(TOOLS)
	JAX_COMPILATION_CACHE_DIR=$(abspath .cache/jax-lowest) \
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow" $(LOWEST_TESTS)

# the same part with the newest of everything, and a JAX that pyproject.toml does not allow yet
NEWEST := $(VENV)-newest
NEWEST_UV := VIRTUAL_ENV=$(abspath $(NEWEST)) $(BIN)/uv pip install --quiet
test-newest: $(VENV)/.made
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(NEWEST)
	$(NEWEST_UV) --upgrade --override <(echo jax) -e '.[dask]' -e ./papers $(TOOLS)
	@$(NEWEST)/bin/python -c 'import jax, numpy, sys; print("Python", sys.version.split()[0], "JAX", jax.__version__, "NumPy", numpy.__version__)'
	JAX_COMPILATION_CACHE_DIR=$(abspath .cache/jax-newest) \
	$(NEWEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow" $(LOWEST_TESTS)

# what runs on several devices, on four virtual ones: the suite has two
DEVICES ?= tests/test_devices.py tests/federated/test_mesh.py tests/selection/test_many.py
test-devices: export XLA_FLAGS += --xla_force_host_platform_device_count=4
test-devices: $(VENV)/.test
	$(PYTEST) -m "not slow" $(DEVICES)

# small wrong changes of the package, one at a time: which do the tests notice? TIER=long asks more of them
TIER ?= test
mutants: $(VENV)/.test
	$(BIN)/python tests/mutants/run.py --tier $(TIER)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/oxlint -D correctness -D suspicious -A no-array-sort mrsa_jax/study/assets docs/_site/static
	$(BIN)/mypy

# the site: build/site/index.html
docs: $(VENV)/.test
	$(BIN)/python -m sphinx -q -b html -W -n --keep-going -c docs . build/site

# what is published: this commit's site as latest, and that of the newest release as stable
site: docs
	$(BIN)/python docs/_site/publish.py

# the page of the benchmarks' history, from benchmarks/results
history: $(VENV)/.test
	$(BIN)/python docs/benchmark_history.py > docs/benchmark_history.md

# run the notebooks, store their outputs and print their seconds; some: make notebooks NAMES="03 13"
notebooks: $(VENV)/.test
	$(BIN)/python notebooks/store.py $(NAMES)

# the gallery's pictures, one script each
gallery: $(VENV)/.test
	cd docs/gallery/images && for script in ../*.py; do SOURCE_DATE_EPOCH=0 $(abspath $(BIN))/python $$script || exit 1; done

# the report in paper/: its numbers, figures, and text as Markdown, HTML and PDF
paper: $(VENV)/.test
	$(BIN)/python paper/make.py

bench: $(VENV)/.test
	$(BIN)/mrsa-jax bench

# wheels and source distributions of mrsa_jax and mrsa-watch, and whether a registry would take them
dist: $(VENV)/.made
	rm -rf dist
	$(BIN)/uv build --quiet --out-dir dist
	$(BIN)/uv build --quiet --out-dir dist watch
	$(BIN)/uv tool run --quiet --from twine==$(TWINE_VERSION) twine check --strict dist/*.whl dist/*.tar.gz

# whether TAG (v1.2.3) may be published: versions, change log, surface and deprecations agree
tagged: $(VENV)/.test
	$(BIN)/python tests/release/tag.py "$$TAG"

clean:
	rm -rf $(VENV) $(LOWEST) $(NEWEST) .cache .pytest_cache .mypy_cache .ruff_cache build dist *.egg-info
