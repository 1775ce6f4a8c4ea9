# Two commands carry everything: `make book` and `make test`.
# Every target does its own set-up and can be the first one run; run again with nothing
# changed, it does little or nothing. `make help` lists the targets.

# The interpreter that makes .venv: 3.11 or later, with venv (on Debian: apt install python3-venv).
PYTHON ?= python3

# More arguments for pip, for instance to get PyTorch without CUDA (about 3 GB less):
#   make book PIP_ARGS='--extra-index-url https://download.pytorch.org/whl/cpu'
PIP_ARGS ?=

# Restricts `notebooks`, `take-back` and `paper` to some pages: PAGE=learning/auto_mpg
PAGE ?=

# More arguments for uv, which makes the environments of `test-newest`, `test-lowest` and
# `test-install`, for instance to get PyTorch without CUDA: UV_ARGS='--torch-backend cpu'
UV_ARGS ?=

# Numbers in an executed page must depend neither on hash order nor on the number of cores.
export PYTHONHASHSEED := 0
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
# Compiled once, not by each of a hundred processes: PyTorch's and scikit-learn's sources take 4 s.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
INSTALLED := .venv/.installed
LAB := .venv/.lab
BUILT := _build/.built
FRONT_PAGE := _build/html/index.html

# What the built book depends on. Folders of book/ are listed too: their time changes when a
# page is removed, which no remaining file would show.
BOOK_FILES := _config.yml _toc.yml \
    $(shell find book/. -name '.?*' -prune -o -name __pycache__ -prune -o -print 2>/dev/null) \
    $(shell find src -name '*.py' -o -name '*.pyi' -o -name '*.yml' 2>/dev/null) \
    $(addprefix tools/,$(addsuffix .py,book_search chapters citation claim_chips descriptions how_made judging_calls repository_buttons student_notebooks unbroken)) \
    $(wildcard data/results/*.json) paperledger.toml tools/search_words.yml

# MathJax's other ways to begin, 13 MB, as pages load tex-chtml.js; its speech in other languages than
# the book's, 3 MB; what only a debugger of the theme reads, 3 MB; and its fonts for browsers older than
# WOFF2, .7 MB.
UNUSED := $(addprefix mathjax/,mml-*.js node-main.js tex-svg*.js tex-mml-*.js tex-chtml-full*.js \
    input/tex-full.js $(patsubst %,sre/mathmaps/%.json,ca da de es fr hi it nb nn sv)) \
    scripts/*.map styles/*.map vendor/fontawesome/webfonts/*.ttf

# The parts of `make test`: all are tried, also after one has failed, and the end says which did, how
# long each took and what pytest counted. `make part-units` runs one. The book, which one core
# builds, is built beside those that do not look at it; what it prints is shown after theirs.
BESIDE := book
PARTS := rules format types notebooks
LAST := units
REPORTS := _build/reports
PYTEST := $(BIN)/python -m pytest -n 2 --benchmark-disable

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help book pdf figures lab test $(addprefix part-,$(BESIDE) $(PARTS) $(LAST)) test-install test-newest test-lowest test-processors test-seeds test-rounding notebooks take-back paper verify rerun falsify lint format lock mutants bench dist address clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

book: $(BUILT) ## build the book from the executed notebooks, warnings as errors
	@echo "The front page: $(CURDIR)/$(FRONT_PAGE)"

pdf: $(BUILT) ## PDFs in _build: the book to read, with the evidence, and a report a paper; needs Chromium
	$(BIN)/python tools/pdf.py

figures: $(BUILT) ## all figures as SVG in one archive in _build, to teach with
	$(BIN)/python tools/figure_pack.py

lab: $(LAB) ## open JupyterLab, to work with the notebooks; installs it the first time
	$(BIN)/python -m jupyterlab --config tools/lab_config.py

test: $(INSTALLED) ## lint, build the book, run the tests, re-execute and compare every notebook
	@mkdir -p $(REPORTS); rm -f $(REPORTS)/*; \
	try() { for part; do echo "== $$part"; start=$$(date +%s); word=passed; \
	    $(MAKE) --no-print-directory part-$$part || word=FAILED; \
	    counted=$$(sed -n 's/.*<testsuite [^>]*\(errors=[^>]*\) time=.*/\1/p' $(REPORTS)/$$part.xml 2> /dev/null); \
	    printf '%-10s %-6s %5d s  %s\n' $$part $$word $$(($$(date +%s) - start)) "$$counted" \
	        >> $(REPORTS)/summary; \
	done; }; \
	try $(BESIDE) > $(REPORTS)/beside 2>&1 & try $(PARTS); wait; cat $(REPORTS)/beside; try $(LAST); \
	cat $(REPORTS)/summary; failed=$$(awk '/ FAILED / {printf " %s", $$1}' $(REPORTS)/summary); \
	all=$$(wc -l < $(REPORTS)/summary); \
	if [ "$$failed" ]; then $(BIN)/python tools/failures.py $(REPORTS); \
	    echo "Failed:$$failed, of $$all parts."; exit 1; fi; \
	echo "All $$all parts passed."

part-rules: $(INSTALLED)
	$(BIN)/python -m ruff check --no-cache .
part-format: $(INSTALLED)
	$(BIN)/python -m ruff format --check .
part-types: $(INSTALLED)
	$(BIN)/python -m mypy
part-book: book
# Tests that wait for each other's worker are handed over: the browser's lie side by side.
part-units: $(INSTALLED)
	$(PYTEST) --dist worksteal --junitxml=$(REPORTS)/units.xml tests
# `loadfile` keeps the cells of one notebook with one kernel.
part-notebooks: $(INSTALLED)
	$(PYTEST) --dist loadfile --nbval --nbval-current-env -p tools.forked_kernels \
	    --nbval-sanitize-with tools/nbval_sanitize.cfg --junitxml=$(REPORTS)/notebooks.xml book

# What the lock cannot show: whether the unit tests pass with what a user may have. The tests of the
# lock and of the built book are left out, for they are about .venv.
test-newest: RESOLUTION := highest
test-newest: _build/newest/.venv ## the unit tests, and scikit-learn's of ours, with the newest of everything
test-lowest: RESOLUTION := lowest-direct
test-lowest: _build/lowest/.venv ## the unit tests with the lowest versions that pyproject.toml allows
test-newest test-lowest:
	$</bin/python -m pytest -n 2 --dist worksteal --benchmark-disable -p no:cacheprovider tests \
	    --ignore tests/book -m 'not slow and not locked and not built'
	$(if $(filter highest,$(RESOLUTION)),$</bin/python tests/peers/adapter.py -q)

# Made anew each time: what is newest changes.
.PHONY: _build/newest/.venv _build/lowest/.venv
_build/newest/.venv _build/lowest/.venv:
	$(PYTHON) -m venv --clear $@
	$@/bin/python -m pip install -q --disable-pip-version-check uv
	$@/bin/python -m uv pip install -q --python $@/bin/python --resolution $(RESOLUTION) $(UV_ARGS) \
	    -e '.[book,pdf,test]'

# Needs an index, and a GB a temporary environment, of which there are three, one after another.
test-install: dist $(BUILT) ## the wheel in empty environments: eleven student notebooks, and the book by [book]
	$(BIN)/python tools/empty_environments.py dist/*.whl $(UV_ARGS)

test-processors: $(INSTALLED) ## notebooks and unit tests as other processors compute them (hours; ON=... for one)
	$(BIN)/python tools/processors.py $(if $(PAGE),book/$(PAGE).ipynb) $(if $(ON),--on "$(ON)")

test-rounding: $(INSTALLED) ## printed numbers that another processor might turn (PAGE=...)
	$(BIN)/python tools/rounding.py $(PAGE)

test-seeds: $(INSTALLED) ## each page that has a seed, with others: which verdicts stay? (PAGE=... SEEDS="1 2")
	$(BIN)/python -m paperledger.ledger.seeds $(PAGE) $(if $(SEEDS),--seeds $(SEEDS))

notebooks: $(INSTALLED) ## execute the .md sources into the .ipynb that the book shows (PAGE=... for one)
	$(BIN)/python tools/notebooks.py make $(PAGE)

take-back: $(INSTALLED) ## cells that were edited in an .ipynb go into its .md (PAGE=... for one)
	$(BIN)/python tools/notebooks.py take-back $(PAGE)

paper: $(INSTALLED) ## the paper-scale runs, resumable; they store rows in data/results (PAGE=... for one)
	$(BIN)/python tools/notebooks.py paper $(PAGE)

verify: $(INSTALLED) ## check every store's checksum, measure a few cells again: two minutes, no download (FULL=1 for all, STORES=... SEED=...)
	$(BIN)/python -m paperledger.stores.verify $(if $(FULL),--full) $(if $(SEED),--seed $(SEED)) \
	    $(if $(STORES),--stores $(STORES))

rerun: $(INSTALLED) ## measure all of a store anew, into _build/rerun, and compare (STORE=auto_mpg)
	$(BIN)/python -m paperledger.stores.rerun $(STORE)

falsify: $(INSTALLED) ## what wrong number would change each verdict; after a change to a page's checks (PAGE=...)
	$(BIN)/python -m paperledger.ledger.falsify $(PAGE)

lint: part-rules part-format part-types ## ruff (rules and format) and mypy

format: $(INSTALLED) ## let ruff mend what it can, and jupytext the form of the pages
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .
	$(BIN)/python tools/notebooks.py format $(PAGE)

bench: $(INSTALLED) ## the benchmarks, never part of the tests
	$(BIN)/python -m pytest benchmarks

# The examples of the docstrings, in an environment that holds the wheel and what it asks for; those
# that draw are left out with matplotlib.
EXAMPLES = import doctest, importlib, pkgutil, sys, bayesloss; \
    names = [m.name for m in pkgutil.walk_packages(bayesloss.__path__, "bayesloss.")]; \
    run = [doctest.testmod(importlib.import_module(n)) for n in names if "displays" not in n]; \
    print(bayesloss.__file__, *map(sum, zip(*run)), "(failed, tried)"); sys.exit(any(f for f, _ in run))

dist: $(INSTALLED) ## wheel and source archive into dist/; the wheel's examples run with nothing else
	rm -rf dist build _build/wheel
	$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w dist .
	$(BIN)/python -c 'from setuptools import build_meta; build_meta.build_sdist("dist")'
	$(PYTHON) -m venv _build/wheel
	_build/wheel/bin/python -m pip install -q --disable-pip-version-check $(PIP_ARGS) dist/*.whl
	cd _build/wheel && PYTHONPATH= bin/python -c '$(EXAMPLES)'

address: ## write the repository's address into all files that need it: URL=https://github.com/OWNER/REPO
	$(PYTHON) tools/address.py "$(URL)"

clean: ## remove what was built; .venv stays (rm -rf .venv to start over)
	rm -rf _build build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +

lock: ## write the locks: every package with the sums of all its files
	$(PYTHON) -m venv _build/lock
	_build/lock/bin/python -m pip install -q --disable-pip-version-check uv
	_build/lock/bin/python tools/lock.py

mutants: $(INSTALLED) ## faults in the library, one at a time: which do the unit tests see? (hours)
	$(BIN)/python tools/mutants.py

# Every file must have a sum that a lock names. PyTorch comes as a CPU wheel where pip finds one
# (PIP_ARGS, or pip's configuration), or else from PyPI, which for Linux has the CUDA build. The rest
# comes by uv, in a sixth of pip's time; by pip where uv, which does not read pip's configuration,
# finds no index.
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile
LOCKED := $(PIP) --require-hashes --no-deps $(PIP_ARGS)
TORCH := { $(LOCKED) -r requirements-torch-cpu.lock 2> /dev/null || $(LOCKED) -r requirements-torch.lock; }
UV := $(BIN)/python -m uv pip install -q --python $(BIN)/python --require-hashes --no-deps $(PIP_ARGS)
# The distribution `bayesloss` is of before ours was renamed, or another project's: it goes.
# Python compiles what it imports; to compile all of it at once takes longer than to install it. What
# takes long is imported beside what comes next, which does not wait for it: 9 is the lock of ALONE.
COMPILED = import sklearn.ensemble, scipy.stats, torch.func, sympy, pandas, matplotlib.pyplot

# Two `make` in one folder would write over each other: the second waits for the first, and looks
# again whether anything is left to do.
$(INSTALLED): pyproject.toml $(wildcard requirements*.lock)
$(LAB): $(INSTALLED) requirements-lab.lock
$(BUILT): $(INSTALLED) $(BOOK_FILES)

ifndef ALONE
$(INSTALLED) $(LAB) $(BUILT):
	@$(PYTHON) tools/alone.py Makefile $(MAKE) --no-print-directory ALONE=yes $@
else
$(INSTALLED):
	@echo "Installing the locked dependencies into .venv: 1.5 GB, half a minute or more."
	$(PYTHON) -m venv .venv
	-$(LOCKED) -r requirements-uv.lock
	$(TORCH) & $(UV) -r requirements.lock; by_uv=$$?; \
	    wait $$! && { [ $$by_uv = 0 ] || $(LOCKED) -r requirements.lock; }
	-$(BIN)/python -m pip uninstall -qq -y bayesloss
	$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -c '$(COMPILED)' > /dev/null 2>&1 9<&- &
	@touch $@

# Not needed to build or to test the book.
$(LAB):
	@echo "Installing JupyterLab into .venv: 60 MB."
	$(LOCKED) -r requirements-lab.lock
	@touch $@

# Over old doctrees -W forgets the warnings of pages that did not change, so a build starts
# clean. Only the book's own folders go: _build/paper holds the results of long runs.
$(BUILT):
	rm -rf _build/html _build/.doctrees _build/.jupyter_cache $@
	$(BIN)/jupyter-book build . -q -W --keep-going
	cd _build/html/_static && rm -f $(UNUSED)
	@touch $@
endif
