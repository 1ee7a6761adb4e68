# make up: everything set up and running.  make test: everything set up and checked.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Root needs no sudo; everybody else is asked once.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.PHONY: up test install dev-install lint types check pytest lock browser clean

up: install
	@$(RUN) manage.py up

test: dev-install browser lint types check pytest

install: $(VENV)/.installed

dev-install: $(VENV)/.dev-installed

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Claude Ops needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
		|| { echo "Debian keeps venv in a package of its own: installing it"; \
		     $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq python3-venv; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.lock | $(VENV)/bin/pip
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.dev-installed: requirements-dev.lock | $(VENV)/bin/pip
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@ $(VENV)/.installed

browser:
	@command -v chromium >/dev/null || { echo "Installing Debian's chromium for the browser tests"; \
		$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq chromium >/dev/null; }

lint: dev-install
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: dev-install
	$(VENV)/bin/mypy .

check: dev-install
	$(RUN) manage.py check --fail-level WARNING
	$(RUN) manage.py makemigrations --check --dry-run

pytest: dev-install
	$(VENV)/bin/pytest

lock: dev-install
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --no-emit-index-url --extra postgres pyproject.toml -o requirements.lock
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --no-emit-index-url --extra postgres --group dev -c requirements.lock pyproject.toml -o requirements-dev.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
