# Everything a newcomer types starts here. `make test` needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
# One more than there are cores: many tests wait for a grace to end, a lease to run out, a server to come back.
PYTEST_ARGS ?= -n $$(($$(nproc) + 1)) --dist loadfile
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: help venv test test-night test-release test-long test-matrix test-cluster lint types contracts check format demo bench clean faults docs dist test-wheel sbom lock audit

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# The demo needs the package alone: a newcomer sees it half a minute after the clone.
$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e '.[sim]'
	touch $@

$(VENV)/.installed: $(VENV)/.base
	$(BIN)/pip install --quiet -e '.[test]'
	touch $@

venv: $(VENV)/.installed  ## create .venv with everything the tests need

# The suites signal, kill and stop real processes on every core at once. What fails then is judged again alone, on a
# quiet machine: a defect fails twice, a starved process does not.
test: venv  ## run the whole test suite
	$(BIN)/python -m pytest $(PYTEST_ARGS) || \
	  STAYFAST_COUNTS_FILE=tests/.counts/again.json $(BIN)/python -m pytest --last-failed --last-failed-no-failures none -v

faults: venv  ## the fault suites alone, as CI runs them; test-night and test-release inject 10 to 1,000 times as much
	STAYFAST_TIER=pr $(BIN)/python -m pytest -m faults -s tests $(PYTEST_ARGS)

test-night: venv  ## the fault suites at the count of a night (about two hours on two cores); again goes on where it stopped
	$(BIN)/python tools/night.py run --tier night --into tests/.counts/night $(NIGHT_ARGS)
	$(BIN)/python tools/night.py merge tests/.counts/night --to tests/.counts/night.json

test-release: venv  ## the same at the count of a release: a weekend
	$(BIN)/python tools/night.py run --tier release --into tests/.counts/release $(NIGHT_ARGS)
	$(BIN)/python tools/night.py merge tests/.counts/release --to tests/.counts/release.json

# The programs of the zoo sleep most of their time, so that three at a time on each core still leave some of it idle.
test-long: venv  ## every program of the zoo with 20 seeds: half an hour on two cores
	ZOO_SEEDS=20 $(BIN)/python -m pytest tests/rehearse/test_zoo_right.py tests/rehearse/test_zoo_wrong.py --timeout=600 -n $$((3 * $$(nproc))) --dist load

test-matrix: venv  ## loader workers and signals, 469 interrupted runs; forks beside saves, 100 runs (40 minutes on two cores)
	STAYFAST_MATRIX=full $(BIN)/python -m pytest tests/matrix -n $$(($$(nproc) + 1)) --dist loadgroup
	STAYFAST_FORK_RUNS=100 $(BIN)/python -m pytest tests/runtime/test_forks.py

test-cluster: venv  ## the control-plane scenarios on the cluster of STAYFAST_TEST_KUBECONFIG (>= 1.30, no nodes needed)
	@test -n "$$STAYFAST_TEST_KUBECONFIG" || { echo "set STAYFAST_TEST_KUBECONFIG to a kubeconfig; STAYFAST_TEST_LONG=1 measures ten restarts"; exit 2; }
	$(BIN)/python -m pytest tests/control_plane -v -rs -s --timeout=$(if $(STAYFAST_TEST_LONG),5400,900)

lint: venv  ## style
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools

types: venv  ## strict types
	$(BIN)/mypy

contracts: venv  ## import layering, as drawn in docs/design/house.md
	$(BIN)/lint-imports --no-cache

check: lint types contracts  ## everything but the tests

format: venv  ## rewrite in house style
	$(BIN)/ruff check --fix src tests benchmarks tools
	$(BIN)/ruff format src tests benchmarks tools

demo: $(VENV)/.base  ## the whole story on this machine, in under a minute
	$(BIN)/stayfast demo

docs: venv  ## the site, into site/
	$(BIN)/python -m mkdocs build --strict --quiet
	@echo open site/index.html

dist: venv  ## wheel and sdist, into dist/: the same bytes for the same commit
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 1767225600) $(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python tools/check_dist.py dist
	$(BIN)/python tools/make_sbom.py sbom dist/stayfast.cdx.json
	cd dist && sha256sum *

sbom: venv  ## what a release depends on, as CycloneDX, to stdout
	@$(BIN)/python tools/make_sbom.py sbom /dev/stdout

lock:  ## lock every version with its hashes again, into requirements/; needs a network
	$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install --quiet uv
	for name in base all test; do $(VENV)-lock/bin/uv pip compile --quiet --upgrade --generate-hashes --universal \
	  --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
	  $$(test $$name = base || echo --extra $$name) pyproject.toml -o requirements/$$name.txt || exit 1; done

audit:  ## ask the vulnerability service about every locked version; needs a network
	$(PYTHON) -m venv $(VENV)-audit
	@$(VENV)-audit/bin/pip install --quiet pip-audit || { echo "pip-audit cannot be had here: nothing was audited"; exit 1; }
	$(VENV)-audit/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements/all.txt

test-wheel: venv  ## tests against the built wheel, in a fresh environment far from the source (WHEEL_ARGS=--borrow: quick)
	$(BIN)/python tools/test_wheel.py $(WHEEL_ARGS)

clean:  ## remove what make made
	rm -rf $(VENV) $(VENV)-lock $(VENV)-audit dist build site .pytest_cache .mypy_cache .ruff_cache
