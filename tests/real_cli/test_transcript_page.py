"""The transcript's page on what the real CLI wrote, with its own compaction and subagents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.urls import reverse

from escalation.drills.scenario import Reply, Scenario, ScriptedToolCall
from escalation.drills.scripted_api import ScriptedApi
from escalation.resume.transcripts import archive
from sessions_app.models import Session
from tests.real_cli.hosts import Host

LOOK = ScriptedToolCall(tool="Bash", input={"command": "echo the answer is $((6*7))"})
PROBE = ScriptedToolCall(tool="Bash", input={"command": "echo and the question $((3*3))"})
ASK = ScriptedToolCall(
    tool="Task",
    input={"description": "count logs", "prompt": "count", "subagent_type": "general-purpose"},
)


@pytest.fixture
def host(tmp_path: Path):
    scenario = Scenario(
        name="hosts",
        title="hosts",
        tiers={
            1: (Reply(say="I look.", calls=(LOOK, PROBE, ASK)), Reply(say="It stands so.")),
            2: (Reply(say="Summary: all is quiet."),),
            3: (Reply(say="I went on after the compaction."),),
        },
        aside=(Reply(say="I look too.", calls=(PROBE, LOOK)), Reply(say="There are three.")),
    )
    with ScriptedApi(scenario).serving() as api:
        yield Host(tmp_path / "host", api)


@pytest.fixture
def session(db, host: Host, tmp_path: Path) -> Session:
    (tmp_path / "shop").mkdir()
    return host.tier_1(tmp_path / "shop")


def page(client, session: Session, query: str = "") -> str:
    address = reverse("web:transcript", args=[session.pk])
    return client.get(address + query, headers={"HX-Request": "true"}).content.decode()


def test_page_shows_parallel_calls_and_their_results(operator_client, session):
    archive(session)

    shown = page(operator_client, session)

    for words in ("I look.", "the answer is 42", "and the question 9", "It stands so."):
        assert words in shown


def test_page_shows_both_sides_of_a_compaction(operator_client, session, host):
    workdir = Path(session.workdir)
    for tier, prompt in ((2, "/compact"), (3, "Go on.")):
        ended = host.claude(workdir, "--resume", session.session_id, tier=tier, prompt=prompt)
        assert ended.returncode == 0, ended.stderr
    archive(session)

    shown = page(operator_client, session)

    words = ("the answer is 42", "Conversation compacted", "I went on after the compaction.")
    places = [shown.find(word) for word in words]
    assert -1 not in places
    assert places == sorted(places)


def test_page_shows_a_subagent_whole(operator_client, session):
    archive(session)
    path = next(Path(session.config_dir).rglob("agent-*.meta.json"))
    agent = path.name.removeprefix("agent-").removesuffix(".meta.json")

    listed = page(operator_client, session)
    shown = page(operator_client, session, f"?agent={agent}")

    assert json.loads(path.read_text())["description"] == "count logs"
    assert "count logs" in listed
    for words in ("I look too.", "and the question 9", "the answer is 42", "There are three."):
        assert words in shown


def test_page_is_the_same_after_the_cli_deleted_its_file(operator_client, session, host):
    archive(session)
    before = page(operator_client, session)

    host.path_of(session).unlink()

    assert page(operator_client, session) == before
