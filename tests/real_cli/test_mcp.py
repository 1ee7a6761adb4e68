"""`claudeops mcp` as a server of the real `claude`, which calls its tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from django.conf import settings as project
from django.core.management import call_command

from escalation.agent.binary import find_binary
from escalation.drills.scenario import Reply, Scenario, ScriptedToolCall
from escalation.drills.scripted_api import ScriptedApi
from escalation.errors import RefusalCode
from escalation.management.commands.mcp import ACTING, server_of
from sessions_app.models import Cycle, Incident
from tests.escalation.refusals import command_refused
from tests.factories import IncidentFactory, WatchFactory, three_tier_chain, user_with

MANAGE = Path(__file__).resolve().parents[2] / "manage.py"


@pytest.mark.timeout(120)
def test_the_real_cli_reads_the_status_by_its_tool(tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "CLAUDEOPS_STATE_DIR": str(tmp_path / "state"),
        "CLAUDEOPS_ENV_FILE": str(tmp_path / "none"),
    }
    subprocess.run(
        [sys.executable, MANAGE, "upgrade"], env=environment, check=True, capture_output=True
    )
    server = {"command": sys.executable, "args": [str(MANAGE), "mcp"], "env": environment}
    scenario = Scenario(
        name="asks",
        title="An engineer asks",
        tiers={
            1: (
                Reply(calls=(ScriptedToolCall(tool="mcp__claudeops__status", input={}),)),
                Reply(say="Nothing runs."),
            )
        },
    )
    with ScriptedApi(scenario).serving() as api:
        done = subprocess.run(
            [
                *(str(find_binary().path), "-p", "How is it?", "--output-format", "json"),
                *("--strict-mcp-config", "--mcp-config"),
                json.dumps({"mcpServers": {"claudeops": server}}),
                *("--allowedTools", "mcp__claudeops"),
            ],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "ANTHROPIC_API_KEY": "sk-ant-of-a-test",
                "ANTHROPIC_BASE_URL": api.base_url("asks", 1),
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "ENABLE_TOOL_SEARCH": "false",  # or the tools are only named in the first request
            },
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=True,
        )
        asked = [request for request in api.requests if request.main]

    assert json.loads(done.stdout)["is_error"] is False
    offered = {tool["name"] for tool in asked[0].body["tools"]}
    assert {"mcp__claudeops__incidents", "mcp__claudeops__chain"} <= offered
    assert not {f"mcp__claudeops__{name}" for name in ("run_cycle", "acknowledge")} & offered
    (result,) = (
        part
        for message in asked[-1].body["messages"]
        for part in message["content"]
        if isinstance(part, dict) and part.get("type") == "tool_result"
    )
    content = result["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    assert json.loads(text)["version"] == project.CLAUDEOPS_VERSION


def call(server: Any, tool: str, **arguments: Any) -> Any:
    """Call a tool in the thread of the test, so that it shares its transaction."""
    found = server._tool_manager.get_tool(tool)
    assert found is not None
    return json.loads(found.fn(**arguments))


@pytest.fixture
def kept_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.db.connections.close_all", lambda: None)


@pytest.mark.django_db
def test_reading_tools_answer_from_the_record(kept_connection: None) -> None:
    first = three_tier_chain()[0]
    incident = IncidentFactory(title="web answers 502, password=hunter2secret9")
    server = server_of([], None)

    shown = call(server, "incidents")
    assert [row["id"] for row in shown] == [incident.pk]
    assert "hunter2secret9" not in json.dumps(shown)
    assert call(server, "incident", number=incident.pk)["cost_usd"] == 0
    assert [row["tier"] for row in call(server, "chain", session=str(first.pk))] == [1, 2, 3]
    assert call(server, "cycles")[0]["id"] == first.cycle_id
    assert call(server, "costs", period="7")["total"]["cost_usd"] == 2.5
    assert call(server, "services") == []
    with pytest.raises(Exception, match=RefusalCode.NOT_FOUND):
        call(server, "incident", number=incident.pk + 1)


@pytest.mark.django_db
def test_acting_tools_take_the_rights_of_their_account(
    kept_connection: None, tmp_path: Path
) -> None:
    watch = WatchFactory(name="shop", workdir=str(tmp_path))
    incident = IncidentFactory(watch=watch)
    operator = user_with("operator", username="grace")
    server = server_of(list(ACTING), operator)

    started = call(server, "run_cycle", watch="shop")
    call(server, "acknowledge", number=incident.pk)

    assert Cycle.objects.get(pk=started["id"]).requested_by == operator
    assert Incident.objects.get(pk=incident.pk).owner == operator
    with command_refused(RefusalCode.INVALID_ARGUMENTS):
        call_command("mcp", "--allow", "run,approve", "--as", "grace")
    with command_refused(RefusalCode.NOT_PERMITTED):
        server_of(["run"], user_with("viewer", username="ada"))
    tools = anyio.run(server_of([], None).list_tools)
    assert {tool.name for tool in tools} == {
        *("status", "watches", "incidents", "incident", "cycles", "chain", "costs", "services")
    }
