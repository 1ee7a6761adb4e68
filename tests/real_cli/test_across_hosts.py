"""A conversation continues on another host: two homes, one archive, the real CLI.

The words to look for are computed by the tool (`$((6*7))`), so that only its output holds them: a
request with them in it comes from a CLI that really has the earlier conversation.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from escalation.drills.scenario import Reply, Scenario, ScriptedToolCall
from escalation.drills.scripted_api import ScriptedApi
from escalation.resume.transcripts import (
    TranscriptState,
    archive,
    cost_state_total,
    find_on_disk,
    restore,
)
from sessions_app.models import Session
from tests.factories import SessionFactory
from tests.real_cli.hosts import Host

FOUND = "the answer is 42"
LOOK = ScriptedToolCall(tool="Bash", input={"command": "echo the answer is $((6*7))"})
ASK_A_SUBAGENT = ScriptedToolCall(
    tool="Task",
    input={"description": "count", "prompt": "count them", "subagent_type": "general-purpose"},
)
LONG = ScriptedToolCall(tool="Bash", input={"command": "seq 1 40000"})


SCENARIO = Scenario(
    name="hosts",
    title="hosts",
    tiers={
        1: (Reply(say="I look.", calls=(LOOK, LONG, ASK_A_SUBAGENT)), Reply(say="Found.")),
        2: (Reply(say="I go on."),),
    },
    aside=(Reply(say="There are three."),),
)


@pytest.fixture
def api():
    with ScriptedApi(SCENARIO).serving() as serving:
        yield serving


@dataclass(frozen=True)
class FirstRun:
    directory: Path
    workdir: Path
    session_id: str
    printed: str


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> FirstRun:
    """Tier 1 on host A, once for the module: every test goes on with a copy of what it left."""
    place, session_id = tmp_path_factory.mktemp("hosts"), str(uuid.uuid4())
    (place / "shop").mkdir()
    with ScriptedApi(SCENARIO).serving() as serving:
        host = Host(place / "host-a", serving)
        ended = host.claude(place / "shop", "--session-id", session_id, tier=1)
    assert ended.returncode == 0, ended.stderr
    return FirstRun(host.directory, place / "shop", session_id, ended.stdout)


@pytest.fixture
def host_a(api: ScriptedApi, tmp_path: Path, first_run: FirstRun) -> Host:
    shutil.copytree(first_run.directory, tmp_path / "host-a", symlinks=True)
    return Host(tmp_path / "host-a", api)


@pytest.fixture
def first(db, host_a: Host, first_run: FirstRun) -> Session:
    """The row of that run."""
    return SessionFactory(
        session_id=first_run.session_id,
        workdir=str(first_run.workdir),
        config_dir=str(host_a.config_dir),
        host=host_a.directory.name,
        result=first_run.printed,
    )


@pytest.fixture
def host_b(api: ScriptedApi, tmp_path: Path) -> Host:
    return Host(tmp_path / "host-b", api)


@pytest.fixture
def workdir(first_run: FirstRun) -> Path:
    return first_run.workdir


def tool_results(messages: list[dict[str, Any]]) -> list[Any]:
    return [
        block["content"]
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]


@pytest.fixture
def outputs_that_tier_2_has(api: ScriptedApi) -> Callable[[], str]:
    """Tool results in the request of the session that continues."""

    def outputs() -> str:
        messages = next(kept.body["messages"] for kept in api.requests if kept.tier == 2)
        return json.dumps(tool_results(messages))

    return outputs


def test_tier_2_resumes_on_another_host(first, host_a, host_b, workdir, outputs_that_tier_2_has):
    archive(first)

    assert restore(first, host_b.config_dir)
    ended = host_b.tier_2(first, workdir)

    assert ended.returncode == 0, ended.stderr
    assert FOUND in outputs_that_tier_2_has()


def test_tier_2_gets_the_same_conversation_on_another_host(first, host_a, host_b, workdir, api):
    archive(first)
    restore(first, host_b.config_dir)

    host_a.tier_2(first, workdir)
    host_b.tier_2(first, workdir)

    at_home, abroad = (kept.body["messages"] for kept in api.requests if kept.tier == 2)
    assert tool_results(abroad) == tool_results(at_home)
    assert len(abroad) == len(at_home)


def test_tier_2_cannot_resume_on_another_host_without_the_archive(
    first, host_a, host_b, workdir, api
):
    assert not restore(first, host_b.config_dir)
    assert find_on_disk(first, host_b.config_dir) == TranscriptState.MISSING
    assert host_b.tier_2(first, workdir).returncode == 1
    assert not [kept for kept in api.requests if kept.tier == 2]


def test_tier_2_resumes_where_the_working_directory_is_a_link_to_elsewhere(
    db, host_a, host_b, tmp_path, outputs_that_tier_2_has
):
    for name in ("disk-a", "disk-b"):
        (tmp_path / name).mkdir()
    workdir = tmp_path / "shop"
    workdir.symlink_to(tmp_path / "disk-a")
    first = host_a.tier_1(workdir)
    archive(first)
    workdir.unlink()
    workdir.symlink_to(tmp_path / "disk-b")

    assert restore(first, host_b.config_dir)
    ended = host_b.tier_2(first, workdir)

    assert ended.returncode == 0, ended.stderr
    assert "disk-b" in host_b.path_of(first).parent.name
    assert FOUND in outputs_that_tier_2_has()


def test_tier_2_resumes_from_a_transcript_that_was_cut_in_the_middle_of_a_line(
    first, host_a, host_b, workdir, outputs_that_tier_2_has
):
    whole = host_a.path_of(first).read_bytes()
    host_a.path_of(first).write_bytes(whole[:-300])

    assert find_on_disk(first) == TranscriptState.PRESENT
    archive(first)
    assert restore(first, host_b.config_dir)
    ended = host_b.tier_2(first, workdir)

    assert ended.returncode == 0, ended.stderr
    assert FOUND in outputs_that_tier_2_has()


def test_tier_2_resumes_after_the_transcript_was_emptied(
    first, host_a, workdir, outputs_that_tier_2_has
):
    archive(first)
    host_a.path_of(first).write_bytes(b"")
    emptied = find_on_disk(first)
    refused = host_a.tier_2(first, workdir)

    assert restore(first, host_a.config_dir)
    ended = host_a.tier_2(first, workdir)

    assert (emptied, refused.returncode, ended.returncode) == (TranscriptState.EMPTY, 1, 0)
    assert FOUND in outputs_that_tier_2_has()


def test_tier_2_resumes_after_the_transcript_was_deleted(
    first, host_a, workdir, outputs_that_tier_2_has
):
    archive(first)
    before = host_a.path_of(first).read_text()
    host_a.path_of(first).unlink()

    assert restore(first, host_a.config_dir)
    ended = host_a.tier_2(first, workdir)

    assert ended.returncode == 0, ended.stderr
    assert host_a.path_of(first).read_text().count("\n") == before.count("\n")
    assert FOUND in outputs_that_tier_2_has()


def test_subagents_and_long_outputs_are_restored(first, host_a, host_b):
    archive(first)
    restore(first, host_b.config_dir)

    def beside(host: Host) -> dict[str, bytes]:
        directory = host.path_of(first).with_suffix("")
        return {
            str(path.relative_to(directory)): path.read_bytes()
            for path in directory.rglob("*.*")
            if path.suffix != ".json"
        }

    there, here = beside(host_a), beside(host_b)
    assert here.keys() == there.keys()
    assert sorted(Path(name).parts[0] for name in here) == ["subagents", "tool-results"]
    assert b"40000" in b"".join(here.values())


def test_a_forked_conversation_is_archived_and_the_first_one_unchanged(first, host_a, workdir):
    archive(first)

    host_a.tier_2(first, workdir)

    assert archive(first) == 0


def test_the_total_in_the_transcript_is_what_the_cli_reported(first, host_a):
    printed = [json.loads(line) for line in first.result.splitlines()]
    reported = next(line["total_cost_usd"] for line in printed if line["type"] == "result")
    archive(first)
    on_disk = cost_state_total(first)
    host_a.path_of(first).unlink()

    assert on_disk == Decimal(repr(reported)).quantize(Decimal("1e-10"))
    assert cost_state_total(first) == on_disk
