"""`claudeops remedy`: declares, shows, accepts and removes remedies."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from escalation.errors import RefusalCode
from sessions_app.models import Remedy, RemedyRun
from tests.escalation.refusals import command_refused
from tests.factories import RemedyFactory, RemedyRunFactory, WatchFactory, user_with

pytestmark = pytest.mark.django_db


def said(*words: str) -> str:
    out = StringIO()
    call_command("remedy", *words, stdout=out)
    return out.getvalue()


def data(*words: str) -> Any:
    return json.loads(said(*words, "--json"))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "fix.sh"
    file.write_text("#!/bin/sh\necho fixed\n")
    return file


@pytest.fixture
def watch(tmp_path: Path):
    workdir = tmp_path / "shop"
    workdir.mkdir()
    return WatchFactory(name="shop", workdir=str(workdir))


ADD = ("add", "restart", "--watch", "shop", "--description", "Restarts it.")


def test_add_declares_the_words_of_the_command(watch):
    words = ("--kind", "restart", "--grant", "docker", "--parameter", "service: service")

    found = json.loads(said(*ADD, *words, "--json", "--command", "docker restart {service}"))

    row = Remedy.objects.get()
    assert found["command"] == row.command == ["docker", "restart", "{service}"]
    assert (found["tier"], found["grants"], found["waits"]) == (2, ["docker"], None)
    assert [entry["name"] for entry in data("list", "--watch", "shop")] == ["restart"]


@pytest.mark.parametrize(
    "words",
    [
        ("--command", ""),
        ("--command", "docker '"),
        ("--command", "bash -c id"),
        ("--command", "docker restart {service}"),
        ("--tier", "1", "--command", "docker ps"),
        ("--tier", "9", "--command", "docker ps"),
        ("--grant", "all", "--command", "docker ps"),
        ("--seconds", "0", "--command", "docker ps"),
        ("--parameter", "x", "--command", "docker ps"),
        ("--command", "/no/such/script"),
        ("--command", "./fix.sh"),
    ],
)
def test_a_wrong_declaration_is_refused_and_nothing_is_stored(watch, words):
    with command_refused(RefusalCode.INVALID_ARGUMENTS):
        said(*ADD, *words)

    assert not Remedy.objects.exists()


def test_a_changed_script_is_shown_and_accepted(watch, script, monkeypatch):
    monkeypatch.setattr("sys.stdin", StringIO("n\n"))
    said(*ADD, "--command", str(script))
    script.write_text("#!/bin/sh\necho other\n")

    shown = data("show", "restart")
    assert "was changed" in shown["waits"]
    assert "+echo other" in shown["difference"]
    with command_refused(RefusalCode.NOT_CONFIRMED):
        said("accept", "restart")
    assert data("accept", "restart", "--no-input")["waits"] is None


def test_a_name_in_two_watches_needs_the_watch():
    one, other = RemedyFactory(name="restart"), RemedyFactory(name="restart")

    with command_refused(RefusalCode.INVALID_ARGUMENTS):
        said("show", "restart")
    assert data("disable", "restart", "--watch", other.watch.name)["enabled"] is False
    assert data("remove", "restart", "--watch", one.watch.name, "--no-input")["removed"] is True
    assert [row.pk for row in Remedy.objects.all()] == [other.pk]


def test_an_unknown_remedy_is_refused():
    with command_refused(RefusalCode.NOT_FOUND):
        said("show", "restart")
    assert "There is no remedy yet" in said("list")


@pytest.mark.parametrize(("text", "code"), [("echo fixed", None), ("exit 4", 1)])
def test_run_runs_it_here_and_prints_the_result(watch, script, text, code):
    user_with("approver", username="ann")
    script.write_text(f"#!/bin/sh\n{text}\n")
    said(*ADD, "--command", str(script))
    out = StringIO()

    words = ("remedy", "run", "restart", "--as", "ann", "--no-input", "--json")
    if code is None:
        call_command(*words, stdout=out)
    else:
        with pytest.raises(SystemExit) as ended:
            call_command(*words, stdout=out)
        assert ended.value.code == code

    found = json.loads(out.getvalue())
    assert (found["by"], found["exit_code"]) == ("ann", 4 if code else 0)
    assert found["output"] == ("" if code else "fixed\n")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("run", "restart", "too", "many", "--as", "ann"), RefusalCode.INVALID_CHOICE),
        (("run", "restart", "--as", "bob"), RefusalCode.NOT_PERMITTED),
        (("run", "restart", "--as", "nobody"), RefusalCode.ACCOUNT_MISSING),
        (("run", "other", "--as", "ann"), RefusalCode.NOT_FOUND),
        (("run", "restart", "--as", "ann", "--incident", "9"), RefusalCode.NOT_FOUND),
    ],
)
def test_a_run_is_refused_with_its_reason(watch, script, words, code):
    user_with("approver", username="ann")
    user_with("operator", username="bob")
    said(*ADD, "--command", str(script))

    with command_refused(code):
        said(*words, "--no-input")

    assert not RemedyRun.objects.exists()


def test_a_run_is_listed_and_undone(watch):
    user_with("approver", username="ann")
    run = RemedyRunFactory(
        remedy=RemedyFactory(watch=watch, parameters="", command=["true"], undo="look"),
        arguments=[],
    )
    RemedyFactory(watch=watch, name="look", parameters="", command=["echo", "back"], grants="")
    assert f"{run.pk}" in said("runs", "--watch", watch.name)

    undone = data("undo", str(run.pk), "--as", "ann", "--no-input")
    assert (undone["undoes"], undone["output"]) == (run.pk, "back\n")
    with command_refused(RefusalCode.CHANGE_UNDONE):
        said("undo", str(run.pk), "--as", "ann", "--no-input")
    with command_refused(RefusalCode.NOT_FOUND):
        said("undo", "999", "--as", "ann", "--no-input")
    assert [one["id"] for one in data("runs")] == [undone["id"], run.pk]
