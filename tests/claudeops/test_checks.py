"""A wrong value stops the start, and the message names the variable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.checks import Tags
from django.core.checks.registry import registry

from claudeops.checks import check_dotenv, check_names, check_old_names
from claudeops.env import OLD_NAMES

ROOT = Path(__file__).resolve().parent.parent.parent


def check(state: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """`manage.py check` in an installation of its own."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CLAUDEOPS_", "DATABASE_", "ANTHROPIC_"))
    }
    return subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env={**inherited, "CLAUDEOPS_STATE_DIR": str(state), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


WRONG = {
    "CLAUDEOPS_MAX_TIER": "7",
    "CLAUDEOPS_INTERVAL": "abc",
    "CLAUDEOPS_DRY_RUN": "perhaps",
    "CLAUDEOPS_REQUIRE_APPROVAL": "4",
    "CLAUDEOPS_BUDGET_CHAIN": "abc",
    "CLAUDEOPS_BUDGET_WATCH_DAY": "-1",
    "CLAUDEOPS_BUDGET_DAY": "NaN",
    "CLAUDEOPS_BUDGET_MONTH": "Infinity",
    "CLAUDEOPS_CLI_TELEMETRY": "perhaps",
    "CLAUDEOPS_TRACE_CONTENT": "perhaps",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "collector:4318/v1/traces",
    "OTEL_EXPORTER_OTLP_HEADERS": "Bearer token",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "=x",
    "CLAUDEOPS_API_RETRIES": "-1",
    "CLAUDEOPS_PORT": "99999",
    "CLAUDEOPS_API_RATE": "0",
    "CLAUDEOPS_INGRESS": "9009",
    "CLAUDEOPS_INGRESS_URL": "alerts.example.org",
    "CLAUDEOPS_ROOTS": "/srv,shop",
    "CLAUDEOPS_WORKDIR": str(ROOT / "prompts"),
    "CLAUDEOPS_WORKERS": "0",
    "CLAUDEOPS_HOST_LABELS": "nas;lab",
    "CLAUDEOPS_QUEUE_TIMEOUT": "10",
    "CLAUDEOPS_TIER1_MAX_TURNS": "0",
    "CLAUDEOPS_TIER1_TIMEOUT": "never",
    "CLAUDEOPS_TIER2_MAX_BUDGET_USD": "free",
    "CLAUDEOPS_TIER3_ALLOWED_TOOLS": "Read,git log",
    "CLAUDEOPS_RESUME_CONTEXT_THRESHOLD": "1.5",
    "CLAUDEOPS_RESUME_MAX_AGE": "tomorrow",
    "CLAUDEOPS_MAX_CONTINUATIONS": "-1",
    "CLAUDEOPS_MAX_RATE_LIMIT_WAITS": "often",
    "CLAUDEOPS_RATE_LIMIT_RESERVE": "80",
    "CLAUDEOPS_VERIFY_AFTER": "soon",
    "CLAUDEOPS_EVENT_RETENTION_DAYS": "0",
    "CLAUDEOPS_ARCHIVE_RETENTION_DAYS": "never",
    "CLAUDEOPS_ENCRYPTION_KEY": "hunter2hunter2",
    "CLAUDEOPS_URL": "ops.example.org",
    "DATABASE_URL": "mysql://x",
    "CLAUDEOPS_CLAUDE_BIN": "/nonexistent/claude",
    "CLAUDEOPS_PROMPTS_DIR": "/nonexistent/prompts",
    "CLAUDEOPS_APPROVAL_EXPIRES": "later",
    "CLAUDEOPS_COMMAND_APPROVAL_EXPIRES": "-1",
    "CLAUDEOPS_PLAN_SESSIONS": "perhaps",
    "CLAUDEOPS_TIER2_ASK": "docker restart",
    "CLAUDEOPS_TIER3_ASK": "Bash(:*)",
}


@pytest.fixture(scope="module")
def all_wrong(tmp_path_factory) -> subprocess.CompletedProcess[str]:
    return check(tmp_path_factory.mktemp("state"), **WRONG)


def test_wrong_values_stop_the_start(all_wrong):
    assert all_wrong.returncode == 1


@pytest.mark.parametrize("name", WRONG)
def test_all_wrong_values_are_named_at_once(all_wrong, name):
    assert name in all_wrong.stderr


def test_a_wrong_key_is_named_and_not_shown(all_wrong):
    assert WRONG["CLAUDEOPS_ENCRYPTION_KEY"] not in all_wrong.stderr


@pytest.mark.parametrize("name", ["CLAUDEOPS_MAX_TIER", "CLAUDEOPS_INTERVAL", "CLAUDEOPS_PORT"])
def test_a_wrong_value_is_shown_with_the_valid_form(all_wrong, name):
    (line,) = [line for line in all_wrong.stderr.splitlines() if f"{name} is" in line]

    assert repr(WRONG[name]) in line
    assert "but must be" in line


def test_wrong_values_print_no_traceback(all_wrong):
    assert "Traceback" not in all_wrong.stderr


def test_a_valid_installation_starts_and_creates_its_state_directory(tmp_path):
    found = check(tmp_path / "new" / "state")

    assert found.returncode == 0, found.stderr
    assert (tmp_path / "new" / "state" / "secret_key").is_file()
    assert (tmp_path / "new" / "state").stat().st_mode & 0o777 == 0o700


def test_a_state_directory_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").touch()

    found = check(tmp_path / "file" / "state")

    assert found.returncode == 1
    assert f"CLAUDEOPS_STATE_DIR is '{tmp_path}/file/state'" in found.stderr
    assert "Not a directory" in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CLAUDEOPS_LOG_LEVEL", "loud"),
        ("CLAUDEOPS_TIME_ZONE", "Nowhere/Land"),
        ("CLAUDEOPS_TRUSTED_ORIGINS", "ops.example.org"),
    ],
)
def test_a_value_that_would_fail_in_django_is_reported(tmp_path, name, value):
    found = check(tmp_path, **{name: value})

    assert found.returncode == 1
    assert name in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("value", ["abc", "0", "1.5"])
def test_req8_an_invalid_threshold_is_reported_with_the_valid_form(tmp_path, value):
    found = check(tmp_path, CLAUDEOPS_RESUME_CONTEXT_THRESHOLD=value)

    assert found.returncode == 1
    (line,) = [line for line in found.stderr.splitlines() if "CONTEXT_THRESHOLD is" in line]
    assert f"CLAUDEOPS_RESUME_CONTEXT_THRESHOLD is {value!r}" in line
    assert "a number over 0 and up to 1" in line
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("mode", "ids"), [(0o600, []), (0o640, ["claudeops.W002"]), (0o604, ["claudeops.W002"])]
)
def test_a_dotenv_that_others_can_read_is_reported_and_unchanged(settings, tmp_path, mode, ids):
    settings.CLAUDEOPS_ENV_FILE = tmp_path / ".env"
    (tmp_path / ".env").touch()
    (tmp_path / ".env").chmod(mode)

    found = check_dotenv()

    assert [message.id for message in found] == ids
    assert all(f"chmod 600 {tmp_path}/.env" == message.hint for message in found)
    assert (tmp_path / ".env").stat().st_mode & 0o777 == mode


@pytest.fixture
def no_names(monkeypatch) -> None:
    for name in [name for name in os.environ if name.startswith("CLAUDEOPS_")]:
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("no_names")
def test_an_old_name_is_a_warning_that_names_the_new_one(monkeypatch):
    for old in OLD_NAMES:
        monkeypatch.setenv(old, "1")

    found = check_old_names()

    assert {message.id for message in found} == {"claudeops.W004"}
    assert [(message.obj, message.hint) for message in found] == [
        (old, f"Rename it to {new}.") for old, new in OLD_NAMES.items()
    ]
    assert check_names() == []


@pytest.mark.usefixtures("no_names")
def test_an_old_and_a_new_name_together_are_an_error(monkeypatch):
    monkeypatch.setenv("CLAUDEOPS_ROOMS", "off")
    monkeypatch.setenv("CLAUDEOPS_SANDBOX", "on")

    (found,) = check_old_names()

    assert (found.id, found.hint) == ("claudeops.E004", "Remove CLAUDEOPS_ROOMS.")


@pytest.mark.usefixtures("no_names")
def test_a_blank_old_name_is_ignored(monkeypatch):
    monkeypatch.setenv("CLAUDEOPS_ROOMS", " ")

    assert [*check_old_names(), *check_names()] == []


def test_every_check_of_the_configuration_runs_at_the_start_of_a_command():
    ours = [
        check
        for check in registry.registered_checks
        if check.__module__ in {"claudeops.checks", "escalation.checks"}
    ]

    assert len(ours) > 10
    assert [check for check in ours if not {"claudeops", Tags.database} & {*check.tags}] == []


def test_the_checks_of_the_admin_see_its_models():
    program = (
        "import django; django.setup()\n"
        "from django.contrib.admin import site\n"
        "from django.core.checks import run_checks\n"
        "print(len(site._registry), run_checks(tags=['admin']), len(site._registry) > 20)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "claudeops.settings"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout == "0 [] True\n"
