# Everything that the project needs is installed by these targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
STAMP := $(VENV)/.installed
# One more than there are cores: tests wait for programs that they started.
TEST_PROCESSES ?= $(shell expr $$(nproc) + 1)

# Servers start in three seconds with compiled modules, in seven without.
export PYTHONDONTWRITEBYTECODE :=
# Those of the system come first.
export PATH := $(PATH):$(shell $(PYTHON) deploy/programs.py path)
export YES

.PHONY: wheel release release-tree demo test lint types imports programs s3 images nomad unit slowest bench soak soak-sim soak-memory fuzz docs lock runner site clean deps help
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): requirements.lock pyproject.toml deploy/uv.txt
	@echo "Installing the locked packages into $(VENV) (a minute on a fresh machine) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(UV) || $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r deploy/uv.txt
	@$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

deps: $(STAMP) ## install into .venv

demo: $(STAMP) ## the main job; NOMAD=1: on a real Nomad, KEEP=1: leaves it running, QUICK=1: shorter
	@$(if $(NOMAD),deploy/nomad/build >/dev/null &&) \
	  $(BIN)/python -m deploy.demo $(if $(NOMAD),--nomad) $(if $(KEEP),--keep) $(if $(QUICK),--quick)

lint: $(STAMP) ## style
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: $(STAMP) ## mypy, strict
	@$(BIN)/mypy
	@$(BIN)/mypy tests benchmarks deploy

imports: $(STAMP) ## import rules
	@$(BIN)/lint-imports --no-cache

programs: ## the programs of others that the tests run; YES=1: install without a question
	@$(PYTHON) deploy/programs.py

s3:
	@deploy/s3/build >/dev/null || echo "Without an S3 service its tests are skipped (a failure where CI=true)." >&2

images: $(STAMP) ## container images, in build/containers; NAMES='…', ARCH=arm64, LOAD=1: into Docker
	@$(BIN)/python -m deploy.containers $(NAMES) $(if $(ARCH),--arch $(ARCH)) $(if $(LOAD),--load)

nomad: ## the pinned Nomad, built once into a cache folder (6 to 30 minutes)
	@deploy/nomad/build

test: programs lint types imports s3 ## lint, types, import rules and all tests
	@deploy/nomad/build >/dev/null || echo "Without a Nomad its tests are skipped (a failure where CI=true)." >&2
	@$(BIN)/pytest -n $(TEST_PROCESSES) --dist loadgroup --junitxml=build/tests.xml

slowest: $(STAMP) ## the table of the slowest tests in CONTRIBUTING.md, from the last `make test`
	@$(BIN)/python -m deploy.slowest

unit: $(STAMP) ## the fast tests: units and contracts, in a minute or two
	@$(BIN)/pytest -n $(TEST_PROCESSES) --dist loadgroup -p no:schemathesis tests/unit tests/contract -m "not slow and not postgres and not nomad and not ssh and not browser and not faketime and not systemd and not nginx and not bubblewrap and not prometheus and not s3 and not docker"

bench: $(STAMP) ## all benchmarks; tables on stdout, JSON in build/bench
	@$(BIN)/python -m benchmarks

bench-%: $(STAMP) ## one benchmark, e.g. bench-api
	@$(BIN)/python -m benchmarks $*

soak: $(STAMP) ## 1,000 random kill -9 in all, on each cluster and database; KILLS=100, SEED=2: others
	@rm -rf build/soak
	@SOAK_KILLS=$(or $(KILLS),1000) SOAK_SEED=$(or $(SEED),1) $(BIN)/pytest -s tests/acceptance/test_soak.py; \
	  status=$$?; $(BIN)/python -m tests.acceptance.soak; exit $$status

soak-sim: $(STAMP) ## the whole service in virtual time under 1,000 schedules of faults; SCHEDULES=5000, SEED=2, DENSE=1, SCHEDULE='…'
	@$(BIN)/python -m tests.sim_soak $(if $(SCHEDULES),--schedules $(SCHEDULES)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(DENSE),--dense) $(if $(SCHEDULE),--schedule '$(SCHEDULE)')

soak-memory: $(STAMP) ## whether a used server's memory grows, 30 minutes; MINUTES=60, SEED=2: others
	@$(BIN)/python -m tests.soak_memory $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

fuzz: $(STAMP) ## foreign bytes and requests, random each time (minutes); EXAMPLES=5000, SEED=2: others
	@$(BIN)/python -m tests.fuzz $(if $(EXAMPLES),--examples $(EXAMPLES)) $(if $(SEED),--seed $(SEED))

docs: $(STAMP) ## regenerate the reference pages and schemas
	@$(BIN)/python -m deploy.job_fields
	@$(BIN)/python -m deploy.reference

site: $(STAMP) ## the docs as a site with a search, in build/site
	@$(UV) venv --quiet --allow-existing build/site-tools
	@$(UV) pip install --quiet --python build/site-tools/bin/python --require-hashes -r deploy/site.txt
	@build/site-tools/bin/zensical build --clean --strict

lock: $(STAMP) ## solve the dependencies again
	@$(UV) pip compile pyproject.toml --all-extras --generate-hashes --no-header --no-annotate --quiet --upgrade -o requirements.lock
	@echo zensical | $(UV) pip compile - --generate-hashes --no-header --no-annotate --quiet --upgrade -o deploy/site.txt
	@echo uv | $(UV) pip compile - --generate-hashes --no-header --no-annotate --quiet --upgrade -o deploy/uv.txt

clean: ## remove what was built
	@rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

wheel: $(STAMP) ## dist/edgeyard-…-py3-none-any.whl, from which Edgeyard is installed by its path
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null
	@ls -t dist/edgeyard-*.whl | head -1

release: $(STAMP) ## VERSION=0.2.0: check the tree, then changelog, stored databases, commit, tag, and dist/VERSION with all that is published
	@$(BIN)/python -m deploy.release $(VERSION)

release-tree: $(STAMP) ## VERSION=0.2.0: the commit of a release alone, with the databases that its servers leave; again after a later migration
	@$(BIN)/python -m deploy.release --tree $(VERSION)

runner: $(STAMP) ## build/edgeyard-runner.pyz, the runner as one file for boards
	@mkdir -p build && $(BIN)/python -m edgeyard.devices.runner.pyz build/edgeyard-runner.pyz
