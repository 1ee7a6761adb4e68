"""Fixtures of every test, and the kind of each test.

The kinds are markers, given here by where a test lies and what it uses, so that nobody forgets one:
`make quick` leaves some of them out, `pytest -m browser` runs one of them alone. Only `smoke` and
`prove` are given by hand.

A proof takes minutes. It runs with `make prove` (`pytest -m prove`), or when its file is named on
the command line; otherwise it is deselected, and the end of the output lists it.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client, override_settings

from tests.devtools.postgres import OwnPostgres, own_postgres
from tests.factories import UserFactory

admin.autodiscover()  # as `claudeops/urls.py` does: some tests are made for each list of it

TESTS = Path(__file__).resolve().parent
PROJECT = TESTS.parent
# Files go to the cores in this order: what takes long begins first, so that none waits at the end.
LONGEST_FIRST = ("chaos", "system", "browser", "real_cli", "thorough", "processes")


# Every case of a table through whole runs or whole pages.
MATRICES = {
    *("test_guard_runs", "test_resume_refused", "test_policy_on_every_path", "test_same_facts"),
    *("test_prompt_matrix", "test_capabilities", "test_urls", "test_acting", "test_admin_lists"),
    *("test_query_counts", "test_hundred_watches", "test_bench_pages", "test_hostile_text"),
    "test_bench_api",
}
# Interpreters or families of processes are started and waited for.
PROCESSES = {
    *("test_process", "test_process_tree", "test_silence", "test_tool_shell", "test_children"),
    *("test_worker", "test_web_server", "test_fifo_wakeup", "test_checks", "test_settings"),
    *("test_start", "test_chaos_small_disk", "test_command_runner", "test_killed_runner"),
    *("test_command_sandbox", "test_limits", "test_host_command", "test_command_line"),
    *("test_kube_client", "test_ssh_agent", "test_asgi", "test_commands", "test_notifier"),
    "test_channel_views",
    *("test_up_lock", "test_upgrade", "test_private_files", "test_delivery_process", "test_host"),
}

# Their tests run sessions of the fake CLI; those of pages only name it.
PACKAGES_OF_RUNS = {
    *("run", "agent", "resume", "incidents", "supervisor", "worker", "management"),
}


DESELECTED_PROOFS = pytest.StashKey[list[str]]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    for item in items:
        for kind in sorted(kinds_of(item)):
            item.add_marker(kind)
    deselect_proofs(config, items)
    items.sort(key=rank)
    yield
    # pytest-django has put tests without a database last, and those of whole installations have
    # none. What it needs stays: tests that empty the database come after those that roll back.
    items.sort(key=lambda item: item.get_closest_marker("system") is None)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through all modules and tests again and again."""
    gc.freeze()


def deselect_proofs(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "prove" in config.getoption("markexpr"):
        return
    named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    proofs = [item for item in items if item.get_closest_marker("prove") and item.path not in named]
    config.stash[DESELECTED_PROOFS] = [item.nodeid for item in proofs]
    config.hook.pytest_deselected(items=proofs)
    left_out = set(proofs)
    items[:] = [item for item in items if item not in left_out]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tells the controller of pytest-xdist what this worker deselected."""
    worker_output = getattr(session.config, "workeroutput", None)
    if worker_output is not None:
        worker_output["deselected_proofs"] = session.config.stash.get(DESELECTED_PROOFS, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker collects the same tests, so the answer of the last one is kept."""
    found = getattr(node, "workeroutput", {}).get("deselected_proofs")
    if found is not None:
        node.config.stash[DESELECTED_PROOFS] = found


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Lists the proofs that were not run."""
    proofs = config.stash.get(DESELECTED_PROOFS, [])
    if not proofs:
        return
    terminalreporter.section(f"{len(proofs)} proofs were not run; `make prove` runs them")
    for file, count in Counter(name.partition("::")[0] for name in proofs).items():
        terminalreporter.write_line(f"{count:5} {file}")


def kinds_of(item: pytest.Item) -> set[str]:
    folder = item.path.relative_to(TESTS).parts[0]
    found = {
        "system": folder == "system",
        "real_cli": folder == "real_cli",
        "chaos": folder == "system" and item.path.stem.startswith("test_chaos"),
        "browser": "browser" in fixtures_of(item),
        "postgres": uses_postgres(item),
        "processes": item.path.stem in PROCESSES,
        "whole_runs": takes_whole_runs(item),
        "thorough": is_thorough(item),
    }
    return {kind for kind, is_it in found.items() if is_it}


def uses_postgres(item: pytest.Item) -> bool:
    """Races do, and each test of a file that can start the server, unless it names SQLite."""
    parameters = getattr(item, "callspec", None)
    names_sqlite = parameters is not None and "sqlite" in parameters.params.values()
    can_start_it = hasattr(getattr(item, "module", None), "postgres_server")
    asks_for_it = {"postgres", "contest"} & {*fixtures_of(item)}
    return (can_start_it or bool(asks_for_it)) and not names_sqlite


def is_thorough(item: pytest.Item) -> bool:
    """Thousands of made-up cases, every case of a table, or races between real processes."""
    name = item.path.stem
    made_up = name.endswith(("_fuzz", "_properties"))
    return made_up or name in MATRICES or "contest" in fixtures_of(item)


def takes_whole_runs(item: pytest.Item) -> bool:
    """Tell whether a test runs whole sessions of the fake CLI."""
    return "fake_cli" in fixtures_of(item) and item.path.parent.name in PACKAGES_OF_RUNS


def fixtures_of(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def rank(item: pytest.Item) -> int:
    kinds = [kind for kind in LONGEST_FIRST if item.get_closest_marker(kind)]
    return LONGEST_FIRST.index(kinds[0]) if kinds else len(LONGEST_FIRST)


def migrate(**variables: str) -> None:
    """Run `manage.py migrate` in a process without the developer's settings."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
        cwd=PROJECT,
        env={**kept, **variables},
        check=True,
        timeout=300,  # on a machine that is busy
    )


@contextmanager
def kept_until_the_record_changes(name: str) -> Iterator[Path]:
    """Give a file that outlives the tests; only one process at a time sees whether it is there."""
    sources = (*(PROJECT / "sessions_app").rglob("*.py"), PROJECT / "requirements.lock")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources)))
    kept = PROJECT / ".pytest_cache" / "migrated"
    kept.mkdir(parents=True, exist_ok=True)
    file = kept / f"{digest.hexdigest()}.{name}"
    with (kept / f"lock-{name}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            for older in kept.glob(f"*.{name}"):
                older.unlink()
        yield file


@pytest.fixture(scope="session")
def migrated_database() -> Path:
    """An SQLite file with every table, which tests copy."""
    with kept_until_the_record_changes("sqlite3") as file:
        if not file.exists():
            with tempfile.TemporaryDirectory(dir=file.parent) as made:
                migrate(CLAUDEOPS_STATE_DIR=made)
                (Path(made) / "claudeops.sqlite3").rename(file)
    return file


@pytest.fixture(scope="session")
def postgres() -> Iterator[OwnPostgres]:
    """A PostgreSQL server for all tests of this process."""
    with own_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def new_postgres_database(
    postgres: OwnPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], str]:
    """Creates a migrated database and returns its address."""
    template = postgres.new_database()
    with kept_until_the_record_changes("sql") as dump:
        if dump.exists():
            postgres.load(template, dump.read_bytes())
        else:
            state = tmp_path_factory.mktemp("state")
            migrate(DATABASE_URL=template, CLAUDEOPS_STATE_DIR=str(state))
            made = dump.with_suffix(".made")
            made.write_bytes(postgres.dump(template))
            made.rename(dump)
    return lambda: postgres.new_database(template)


def runs_on_sqlite() -> bool:
    return django_settings.DATABASES["default"]["ENGINE"].endswith("sqlite3")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    request, django_db_modify_db_settings_parallel_suffix: None
) -> Iterator[None]:
    """A file, because a web server under test is another thread; one for each test process."""
    if not runs_on_sqlite():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="claudeops-test-") as directory:
        file = Path(directory) / "test.sqlite3"
        shutil.copy(request.getfixturevalue("migrated_database"), file)
        database = django_settings.DATABASES["default"]
        database["TEST"] = {**database.get("TEST", {}), "NAME": str(file)}
        yield


@pytest.fixture(scope="session")
def django_db_keepdb(request) -> bool:
    """The copy of the migrated database is used as it is; migrations that it lacks are applied."""
    return runs_on_sqlite() or bool(request.config.getvalue("reuse_db"))


@pytest.fixture(autouse=True)
def ordinary_umask() -> Iterator[None]:
    """Entry points narrow it for their whole process, and a test's process is everybody's."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(scope="session", autouse=True)
def quick_passwords() -> Iterator[None]:
    """Hashing is slow on purpose, which no test needs."""
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield


@pytest.fixture
def operator(db) -> User:
    return UserFactory(username="operator", is_staff=True, is_superuser=True)


@pytest.fixture
def operator_client(operator: User) -> Client:
    """A browser in which the operator is logged in."""
    client = Client()
    client.force_login(operator)
    return client
