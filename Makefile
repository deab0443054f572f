# Everything works on a fresh machine that has Python 3.11 or later and make; each target sets up what it needs.

# --- Settings: make NAME VARIABLE=value ---

# The Python that the environment is made of, and the folder of the environment.
PYTHON   ?= python3
VENV     ?= .venv
# test: how many tests run at once (4, more than two processors, because many of them wait for a process or a pause; 2 in
# other targets), and which ones (all if none is named).
WORKERS  ?=
TESTS    ?=
# run: the port.
PORT     ?= 8000
# browser: the program.
CHROMIUM ?= chromium
# bench, mutation: some of their parts (all if none is named; docs/numbers.md lists those of bench).
PARTS    ?=
# mutation: how many mistakes in each part (200 if no number is given).
MUTANTS  ?=
# soak, soak-gateway, simulate: for how long. kills: how often, and on which stores (a SQLite file if none is named).
MINUTES  ?= 10
RUNS     ?= 20
STORES   ?=
# fleet: which scenes ("short" for four minutes of them, all if none is named), and for how long replicas are killed.
SCENES   ?=
SECONDS  ?= 100
# fleet: the commit from which the upgrade scenes begin (each has one of its own if none is named).
OLD      ?=
# flood: how much.
MIB      ?= 700
# corpus: how many documents (all if no number is given).
DOCUMENTS ?=
# test: 1 to compare the coverage of each folder with its table. coverage: 1 to write that table anew.
COVERAGE ?=
WRITE    ?=
# interop, pairs, corpus, conformance, simulate: a number that chooses a part of what they try (a smaller part than without it).
SAMPLE   ?=
# walk: the walk to show (all are compared with their counts if none is named).
WALK     ?=

BIN   := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .bench/venv

.DEFAULT_GOAL := help
.PHONY: help nightly setup run gateway play test check coverage pythons fetch fuzz interop pairs corpus search conformance browser docs build release-check bench soak soak-gateway flood simulate simulate-mistakes kills fleet walk mutation clean

help: # show the targets that people type most
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1	\2/' | expand -t 22
	@echo "CONTRIBUTING.md lists all targets."

# --- Environments ---

setup: $(READY) ## make the virtual environment (.venv) with the package and its tools

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Toolwire needs Python 3.11 or later; say PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group dev --editable .
	@touch $@

# An environment of its own for the libraries that we are measured against.
$(PEERS)/.ready: bench/requirements.txt pyproject.toml
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(PEERS)/bin/python -m pip install --quiet --requirement bench/requirements.txt --editable '.[http,auth,policy]'
	@touch $@

# One of them is for Node. Where there is no npm, its lines say that it is missing.
.bench/node/.ready: bench/package.json
	@mkdir -p .bench/node && cp bench/package.json .bench/node/
	if command -v npm; then npm install --silent --no-audit --no-fund --prefix .bench/node; fi
	@touch $@

# --- Look at it ---

run: $(READY) ## serve examples/everything.py over HTTP and open the inspector (PORT=8001 for another port)
	@$(BIN)/toolwire dev examples/everything.py --port $(PORT)

gateway: $(READY) # serve examples/gateway.toml: two servers from npm behind sign-in (installs them, and Node if need be, into .gateway)
	@$(BIN)/python scripts/try_gateway.py

play: $(READY) # play a short session with examples/hello.py over stdio and print it
	@$(BIN)/python scripts/play.py

# --- Before a change lands (.ci/run has all of them) ---

test: $(READY) ## run the tests (TESTS=tests/server for some of them)
	$(if $(COVERAGE),$(BIN)/python -m pip install --quiet --group coverage)
	$(BIN)/python -m pytest -n $(or $(WORKERS),4) $(if $(COVERAGE),--cov --cov-report=json:.coverage.json) $(TESTS)
	$(if $(COVERAGE),$(BIN)/python scripts/coverage_table.py .coverage.json $(if $(WRITE),--write))

check: $(READY) ## lint, formatting, words, types for three platforms, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/words.py
	$(BIN)/mypy --cache-dir .mypy_cache/linux --platform linux
	$(BIN)/mypy --cache-dir .mypy_cache/darwin --platform darwin
	$(BIN)/mypy --cache-dir .mypy_cache/win32 --platform win32
	$(BIN)/mypy --cache-dir .mypy_cache/scripts scripts examples
	$(BIN)/python tests/blocks.py
	$(BIN)/python -m pytest -q tests/test_layers.py

coverage: # run the tests and compare the coverage of each folder with tests/coverage.toml (WRITE=1 writes it anew)
	@$(MAKE) --no-print-directory test COVERAGE=1

pythons: $(READY) # run all tests on each other supported Python of this machine
	@$(BIN)/python scripts/pythons.py | while read -r version python; do \
	    if [ "$$python" = - ] || $(BIN)/python -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$$version')"; then continue; fi; \
	    $(MAKE) --no-print-directory test PYTHON="$$python" VENV=".venv$$(echo $$version | tr -d .)" </dev/null || exit 1; \
	done

fetch: $(READY) # bring the programs and documents of others that interop, pairs, corpus and conformance need
	@$(BIN)/python tests/interop/peers.py
	@$(BIN)/python scripts/corpus.py --install
	@$(BIN)/python scripts/search_recall.py --install
	@$(BIN)/python scripts/conformance.py --install

fuzz: $(READY) # send 20,000 mutated messages through a server on each era, and try 300 examples of each property (TOOLWIRE_FUZZ, TOOLWIRE_EXAMPLES for other numbers)
	TOOLWIRE_FUZZ=$${TOOLWIRE_FUZZ:-20000} $(BIN)/python -m pytest -q tests/fuzz
	TOOLWIRE_EXAMPLES=$${TOOLWIRE_EXAMPLES:-300} $(BIN)/python -m pytest -q -n $(or $(WORKERS),2) -m hypothesis --ignore tests/fuzz

interop: $(READY) # run the tests against other MCP libraries (installs them and Node into .bench/peers)
	@$(BIN)/python tests/interop/peers.py
	TOOLWIRE_PEERS=$(abspath .bench/peers) $(BIN)/python -m pytest -q -n $(or $(WORKERS),2) $(if $(SAMPLE),--sample $(SAMPLE)) tests/interop

pairs: $(READY) # call servers of others with clients of others, directly and through our gateway (144 pairs; SAMPLE=7 for twelve of them)
	@$(BIN)/python tests/interop/peers.py node mcp-1.30.0 mcp-2.3.0 fastmcp-2.14.7 fastmcp-3.4.10 fastmcp-4.1.2
	TOOLWIRE_PEERS=$(abspath .bench/peers) TOOLWIRE_PAIRS=$(or $(SAMPLE),all) $(BIN)/python -m pytest -q -n $(or $(WORKERS),2) tests/pairs

corpus: $(READY) # read thousands of real API descriptions, from packages of npm in .corpus (DOCUMENTS=150 for some of each kind)
	$(BIN)/python scripts/corpus.py $(if $(DOCUMENTS),--documents $(DOCUMENTS)) $(if $(SAMPLE),--sample $(SAMPLE))
	$(BIN)/python scripts/written_code.py .corpus/@octokit/openapi/package/generated/api.github.com.json --tags issues pulls

search: $(READY) # judge the search for tools by queries of our own, GitHub's operations and BFCL of PyPI (DATA=folder also with LiveMCPBench and MetaTool)
	$(BIN)/python scripts/search_recall.py --install
	$(BIN)/python scripts/search_recall.py $(if $(DATA),--data $(DATA))

conformance: $(READY) # run the official conformance suite (needs Node)
	$(BIN)/python scripts/conformance.py $(if $(SAMPLE),--sample $(SAMPLE))

browser: $(READY) # test the inspector's page, ready views, and our views in hosts of others, in a real browser (needs chromium); screenshots in .browser/
	@command -v $(CHROMIUM) >/dev/null || { echo "browser: there is no $(CHROMIUM); install Debian's chromium, or say CHROMIUM=..."; exit 1; }
	$(BIN)/python -m pip install --quiet --group browser
	@$(BIN)/python tests/interop/peers.py node fastmcp-4.1.2 mcp-2.3.0 view-hosts view-servers
	TOOLWIRE_BROWSER=$$(command -v $(CHROMIUM)) TOOLWIRE_PEERS=$(abspath .bench/peers) \
	TOOLWIRE_AXE=$(abspath .bench/peers/node/node_modules/axe-core/axe.min.js) $(BIN)/python -m pytest -q -n $(or $(WORKERS),2) tests/browser

docs: $(READY) ## build the documentation
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python -m mkdocs build --strict

build: $(READY) # build the sdist and the wheel into dist/, and try the wheel as a stranger would
	$(BIN)/python -m build
	$(BIN)/python scripts/try_wheel.py --types

# --- Before a release ---

release-check: $(READY) # see that the tree can be released: committed, versions agree, packages work on every Python here
	@$(BIN)/python scripts/release_check.py

# --- Measure, and run for long ---

bench: $(PEERS)/.ready .bench/node/.ready ## measure against mcp and fastmcp (BENCH_QUICK=1 for a short look, PARTS="stdio imports" for some lines)
	@$(PEERS)/bin/python bench/run.py $(PARTS)

soak: $(READY) # put a server under mixed traffic and see that nothing grows (MINUTES=10; Linux)
	$(BIN)/python scripts/soak.py --minutes $(MINUTES)

soak-gateway: $(READY) # put a gateway under mixed traffic while servers behind it die, hang and come back (MINUTES=10; Linux)
	$(BIN)/python -m tests.soak_gateway --minutes $(MINUTES)

flood: $(READY) # send 700 MiB of notifications to readers that are fast, slow or absent, and see that memory stays below 150 MiB (MIB=700; Linux)
	$(BIN)/python scripts/flood.py --mib $(MIB)

simulate: $(READY) # simulate a fleet with faults on a virtual clock, and see that it keeps its rules (MINUTES=10; POSIX)
	$(BIN)/python -m tests.simulation --minutes $(MINUTES) $(if $(SAMPLE),--first $(SAMPLE))

simulate-mistakes: $(READY) # make mistakes on purpose and see that the simulation notices them (POSIX)
	$(BIN)/python -m tests.simulation --mistakes

kills: $(READY) # kill a server with 200 tasks running and 200 results waiting, 20 times (RUNS=20, STORES=redis://...; POSIX)
	$(BIN)/python scripts/kill_tasks.py --runs $(RUNS) $(if $(STORES),--stores '$(STORES)')

fleet: $(READY) # run three replicas on Redis behind nginx through outages, kills and upgrades (SCENES=short for four minutes; Linux)
	FLEET_SECONDS=$(SECONDS) $(if $(OLD),FLEET_BEFORE=$(OLD)) $(BIN)/python -m tests.fleet $(SCENES)

walk: $(READY) # compare the opcodes of eight calls with tests/walk/counts.toml (WALK=http-modern shows one of them)
	$(BIN)/python -m tests.walk $(or $(WALK),--check)

mutation: $(READY) # break protocol/ and server/policy 200 times each and see whether the tests notice (PARTS=policy MUTANTS=20)
	$(BIN)/python -m pip install --quiet --group mutation
	$(BIN)/python scripts/mutation.py --workers $(or $(WORKERS),2) $(if $(PARTS),--parts $(PARTS)) $(if $(MUTANTS),--mutants $(MUTANTS))

# What takes too long for every change. A failure does not keep the rest from running.
NIGHTLY := "test TESTS=--all-cells" pythons "interop TOOLWIRE_SHARED_SIGN_IN=20x50" pairs conformance \
	"fuzz TOOLWIRE_FUZZ=200000 TOOLWIRE_EXAMPLES=2000" "simulate MINUTES=60" "soak MINUTES=20" "soak-gateway MINUTES=60" \
	flood kills fleet corpus mutation bench

nightly: $(READY) ## run what takes too long for every change: hours of faults, floods and mutations
	@failed=; for target in $(NIGHTLY); do \
	    printf '\n== make %s\n' "$$target"; $(MAKE) --no-print-directory $$target || failed="$$failed $${target%% *}"; \
	done; if [ -n "$$failed" ]; then echo "nightly: failed:$$failed" >&2; exit 1; fi

# --- Afterwards ---

clean: # remove what the other targets made
	rm -rf $(VENV) .venv* .bench .browser .corpus .fleet .gateway .soak-gateway .mutation .pythons dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.json
