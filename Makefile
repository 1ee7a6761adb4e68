# make up: set everything up and run it.  make test: set everything up and check it.
# make quick: check a change while you work on it.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Root needs no sudo; other users are asked once.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# Byte code is compiled once, not by every process. (Some images switch that off.)
export PYTHONDONTWRITEBYTECODE :=

# Further CLI versions to test against: they report the cost of each run, and the older one makes
# many calls of its own. One is a program, the other a script for node.
OLD_CLI := @anthropic-ai/claude-code-linux-$(if $(filter aarch64,$(shell uname -m)),arm64,x64)@2.1.197
OLDER_CLI := @anthropic-ai/claude-code@2.0.77
OLD_CLIS := $(VENV)/old-clis
# Checks the accessibility of the pages.
AXE_VERSION := 4.10.3
AXE := $(VENV)/axe-core/$(AXE_VERSION)/axe.min.js

.PHONY: up test test-postgres prove quick install dev-install lint types check pytest lock wheel bubblewrap clients browser postgres proxy senders node old-clis axe clean

up: install bubblewrap
	@$(VENV)/bin/claudeops up

test: dev-install bubblewrap clients browser postgres proxy old-clis axe lint types check pytest

# Needs neither root nor chromium nor PostgreSQL, and takes about a minute on two cores. It leaves out
# the slow kinds of tests, and with the real CLI it runs the smoke tests alone. `make test` leaves out
# the proofs alone, and lists them at its end.
SLOW := browser or postgres or chaos or system or thorough or processes or whole_runs
QUICK := not ($(SLOW)) and (not real_cli or smoke)
quick: dev-install lint
	$(VENV)/bin/pytest -q -n logical -m "$(QUICK)"

# Proofs of the whole system that take minutes. `make test` lists them at its end as not run.
prove: dev-install bubblewrap clients browser postgres proxy senders old-clis axe
	$(VENV)/bin/pytest -n $$(nproc) -m prove

# The whole suite again, on a PostgreSQL server of its own.
test-postgres: dev-install bubblewrap clients browser postgres proxy old-clis axe
	$(RUN) -m tests.on_postgres -n logical

install: $(VENV)/.installed $(VENV)/bin/claudeops

dev-install: $(VENV)/.dev-installed $(VENV)/bin/claudeops

# The command of the installed package, for the code of this checkout.
$(VENV)/bin/claudeops: Makefile | $(VENV)/bin/pip
	@printf '%s\n' '#!$(CURDIR)/$(RUN)' 'import sys' 'sys.path.insert(0, "$(CURDIR)")' \
		'from escalation.management.command_line import main' 'main()' > $@ && chmod +x $@

# Prints each package as it is collected; the exit code is pip's own.
PIP_INSTALL = bash -o pipefail -c '$(VENV)/bin/pip install --disable-pip-version-check --no-input \
	--progress-bar off --require-hashes -r $(1) | sed -un \
	"s/^Collecting \([^ =]*\)==\([^ ;]*\).*/  \1 \2/p; s/^Installing collected packages.*/  unpacking …/p"'

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Claude Ops needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
		|| { echo "Debian keeps venv in a package of its own: installing it"; \
		     $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq python3-venv; }
	@echo "Making a Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.lock | $(VENV)/bin/pip
	@echo "Installing what Claude Ops needs into $(VENV), once:"
	@$(call PIP_INSTALL,requirements.lock)
	@touch $@

$(VENV)/.dev-installed: requirements-dev.lock | $(VENV)/bin/pip
	@echo "Installing what Claude Ops and its tests need into $(VENV), once:"
	@$(call PIP_INSTALL,requirements-dev.lock)
	@touch $@ $(VENV)/.installed

bubblewrap:
	@command -v bwrap >/dev/null || { echo "Installing Debian's bubblewrap for the sandboxes"; \
		$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq bubblewrap >/dev/null; }

# Programs that the sandbox proof runs; an ordinary host has them.
CLIENTS := docker:docker.io ssh:openssh-client curl:curl git:git openssl:openssl ps:procps \
	kubectl:kubernetes-client
clients:
	@missing=$$(for pair in $(CLIENTS); do command -v $${pair%%:*} >/dev/null || echo $${pair#*:}; done); \
	[ -z "$$missing" ] || { echo "Installing for the tests of the sandbox:" $$missing; \
		$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; }

browser:
	@command -v chromium >/dev/null || { echo "Installing Debian's chromium for the browser tests"; \
		$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq chromium >/dev/null; }

postgres:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { \
		echo "Installing Debian's PostgreSQL for the tests of concurrency"; \
		$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq postgresql >/dev/null; }

# Unpacked, not installed: no server of the machine's own is started.
proxy: dev-install
	@[ -x /usr/sbin/nginx ] || [ -x $(VENV)/nginx/usr/sbin/nginx ] || { \
		echo "Fetching Debian's nginx for the tests behind a proxy"; \
		mkdir -p $(VENV)/nginx && cd $(VENV)/nginx && apt-get download -qq nginx && dpkg -x nginx_*.deb . ; }

# Unpacked, too: 30 MB that only a proof needs.
senders: dev-install
	@[ -x /usr/bin/prometheus ] || [ -x $(VENV)/senders/usr/bin/prometheus ] || { \
		echo "Fetching Debian's Prometheus and Alertmanager for the proof of alerts"; \
		mkdir -p $(VENV)/senders && cd $(VENV)/senders \
		&& apt-get download -qq prometheus prometheus-alertmanager \
		&& for package in *.deb; do dpkg -x $$package . || exit 1; done; }

node:
	@{ command -v node && command -v npm; } >/dev/null || { \
		echo "Installing Debian's nodejs and npm for the tests on older CLIs"; \
		$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq nodejs npm >/dev/null; }

old-clis: $(OLD_CLIS)/2.1.197/claude $(OLD_CLIS)/2.0.77/cli.js

$(OLD_CLIS)/2.1.197/claude: PACKAGE = $(OLD_CLI)
$(OLD_CLIS)/2.0.77/cli.js: PACKAGE = $(OLDER_CLI)
$(OLD_CLIS)/2.1.197/claude $(OLD_CLIS)/2.0.77/cli.js: | node
	@mkdir -p $(@D) && cd $(@D) && npm pack --silent "$(PACKAGE)" >/dev/null \
		&& tar xzf *.tgz --strip-components=1 && rm -f *.tgz && test -x $(@F) && touch $(@F) \
		|| { rm -rf "$(CURDIR)/$(@D)"; \
		     echo "npm could not fetch $(PACKAGE), which the tests need. Is there a network?"; exit 1; }

axe: $(AXE)

$(AXE): | node
	@mkdir -p $(@D) && cd $(@D) && npm pack --silent axe-core@$(AXE_VERSION) >/dev/null \
		&& tar xzf *.tgz --strip-components=1 package/axe.min.js && rm -f *.tgz && touch $(@F) \
		|| { rm -rf "$(CURDIR)/$(@D)"; \
		     echo "npm could not fetch axe-core $(AXE_VERSION), which the tests need. Is there a network?"; exit 1; }

lint: dev-install
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: dev-install
	$(VENV)/bin/mypy .

check: dev-install
	$(RUN) manage.py check --fail-level WARNING
	$(RUN) manage.py makemigrations --check --dry-run

# Tests wait for processes half of the time, so one more runs than there are cores.
pytest: dev-install
	$(VENV)/bin/pytest -n $$(( $$(nproc) + 1 ))

lock: dev-install
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --no-emit-index-url --extra postgres pyproject.toml -o requirements.lock
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --no-emit-index-url --extra postgres --group dev -c requirements.lock pyproject.toml -o requirements-dev.lock

# A wheel and an sdist in dist/: `pipx install dist/claudeops-*.whl`, then `claudeops up`.
wheel: dev-install
	$(VENV)/bin/hatchling build

clean:
	rm -rf dist $(VENV) .mypy_cache .ruff_cache .pytest_cache
