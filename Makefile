# The two commands: `make run` and `make test`. Both do all their set-up on a fresh machine.
# `make test-quick` checks in about a minute and a half what needs neither root nor a real part.
SHELL := /bin/bash
# The system's own Python, which packages run with: one that was built without profile-guided
# optimization takes a fifth to a third more time. Where it is too old, the first in PATH.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell /usr/bin/python3 -c '$(NEW_ENOUGH)' 2>/dev/null && echo /usr/bin/)python3
RUN_DIR ?= .run
VENV := .venv
# What tests run containers and machines from; a record marks each as complete.
RUNTIME := $(or $(TEST_RUNTIME_BASE),.test/runtime/base)
TESTBED := $(or $(TEST_MACHINE_BASE),.test/testbed/base)
BASES := $(addsuffix /versions.json,$(RUNTIME) $(TESTBED))
# What pytest compiles is kept, which halves its start.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(VENV)/bin/pytest -q
IDLE := chrt --idle 0
# Parts of the tests that one process each runs, which collects nothing but its own: workers of
# pytest-xdist collect all tests, each, and report each of them, which takes a quarter as much again.
PARTS := objects server orch pods nodeagent
QUICK := $(addprefix quick-,$(PARTS))
PLAIN := $(addprefix plain-,$(PARTS))
SPARE := plain-server plain-objects plain-nodeagent plain-pods
OBJECTS := $(addprefix tests/orch/server/,handlers objects storage strategy webhooks)
# Workers share what waits for most of its time: files of these parts that meet something real or a
# whole agent, and all others.
IN_PARTS := tests/fakes tests/nodeagent tests/orch
REAL := $(shell grep -rlE --include='*.py' 'mark\.real' $(IN_PARTS))
WAITING := $(wildcard tests/nodeagent/test_*.py) $(patsubst %/conftest.py,%,$(REAL))
OTHERS := $(filter-out $(IN_PARTS),$(patsubst %/,%,$(wildcard tests/test_*.py tests/[a-z]*/)))
MACHINE := tests/systemd/test_virtual_machine.py
export RUN_DIR

.PHONY: run test test-quick $(QUICK) plain $(PLAIN) waiting alone machine spare check bench soak deb rpm venv lock clean

run: $(VENV)/.run-ready
	@exec $(VENV)/bin/orch-up --run-dir "$(RUN_DIR)" --runtime-tool tools/runtime \
		--apiserver-port "$${APISERVER_PORT:-6443}" \
		--nodeagent-port "$${NODEAGENT_PORT:-10250}" \
		--healthz-port "$${HEALTHZ_PORT:-10248}" \
		$${SERVE_UPSTREAM_ALIASES:+--serve-upstream-aliases}

# Tests that measure time come last, and leave half of the machine to what is in no hurry: that has
# a turn only when nobody else wants one.
test:
	$(MAKE) --no-print-directory --keep-going --jobs=2 waiting plain
	$(MAKE) --no-print-directory --keep-going --jobs=3 alone machine spare

waiting: $(VENV)/.test-ready
	$(PYTEST) -n auto -m "not soak and not alone" --ignore=$(MACHINE) $(OTHERS) $(WAITING)

alone: $(VENV)/.test-ready
	$(PYTEST) -m alone tests/attacks tests/e2e/test_resize.py

# A join is waited for more than it works.
machine: $(VENV)/.test-ready
	$(IDLE) $(PYTEST) $(MACHINE)
	$(IDLE) $(PYTEST) -m alone tests/e2e/test_join.py

spare:
	@env -u MAKEFLAGS $(IDLE) $(MAKE) --no-print-directory --keep-going --jobs=3 PYTHON="$(PYTHON)" VENV="$(VENV)" check $(SPARE)

%-objects: TESTS := $(OBJECTS) tests/orch/wire tests/fakes
%-server: TESTS := tests/orch/server $(addprefix --ignore=,$(OBJECTS))
%-orch: TESTS := tests/orch --ignore=tests/orch/server --ignore=tests/orch/wire
%-pods: TESTS := tests/nodeagent/pods
%-nodeagent: TESTS := tests/nodeagent --ignore=tests/nodeagent/pods

# Two at a time, whatever else runs. Some of them ask kubectl or promtool.
plain: $(VENV)/.test-ready
	@env -u MAKEFLAGS $(MAKE) --no-print-directory --keep-going --jobs=2 PYTHON="$(PYTHON)" VENV="$(VENV)" $(filter-out $(SPARE),$(PLAIN))

# What it prints is shown when it has ended.
$(PLAIN): $(VENV)/.test-ready
	@$(PYTEST) $(TESTS) $(addprefix --ignore=,$(WAITING)) >$(VENV)/$@ || { cat $(VENV)/$@; exit 1; }
	@echo "$@: $$(tail -n 1 $(VENV)/$@)"

test-quick: $(VENV)/.dev-ready
	@$(MAKE) --no-print-directory --keep-going --jobs=5 --output-sync=target $(QUICK)

$(QUICK): $(VENV)/.dev-ready
	$(PYTEST) --hypothesis-profile=quick -m "not soak and not real and not slow" $(TESTS)

check: $(VENV)/.dev-ready
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

bench: $(VENV)/.test-ready
	$(VENV)/bin/python -m tools.bench

soak: $(VENV)/.test-ready
	tools/setup soak "$(PYTHON)" "$(VENV)"
	$(VENV)/bin/pytest -q -m soak --override-ini addopts="--import-mode=importlib -ra"

# Packages of this tree for Debian, in dist/. Wheels are kept in build/wheels: the second build needs
# no network.
deb rpm: $(VENV)/.dev-ready
	$(VENV)/bin/python -m tools.packages $@

venv: $(VENV)/.dev-ready

# Run-time dependencies only: what `make run` needs.
$(VENV)/.run-ready: requirements.lock pyproject.toml tools/setup
	tools/setup run "$(PYTHON)" "$(VENV)"
	@touch $@

# And the development ones.
$(VENV)/.dev-ready: $(VENV)/.run-ready requirements-dev.lock
	tools/setup dev "$(PYTHON)" "$(VENV)"
	@touch $@

# The real parts the tests meet: Prometheus, kubectl, a compiler.
$(VENV)/.parts-ready: $(VENV)/.run-ready
	tools/setup test "$(PYTHON)" "$(VENV)"
	@touch $@

# Made beside the rest of the set-up: else many tests wait for the first that needs one.
$(RUNTIME)/versions.json:
	-tools/runtime build --base $(RUNTIME)
$(TESTBED)/versions.json:
	-$(PYTHON) -m tools.testbed.root $(TESTBED)

$(VENV)/.test-ready: $(VENV)/.dev-ready $(VENV)/.parts-ready | $(BASES)
	@touch $@

lock: $(VENV)/.dev-ready
	$(VENV)/bin/pip install --quiet pip-tools
	$(VENV)/bin/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		--extra build --extra dev --extra encrypt --extra fast \
		-o requirements-dev.lock pyproject.toml
	$(VENV)/bin/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		--extra build -c requirements-dev.lock -o requirements.lock pyproject.toml
	sed -i 's/^# *pip-compile.*/#    make lock/' requirements.lock requirements-dev.lock

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
