"""`claudeops mcp` as a server of the real `claude`, which calls its tools."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from django.conf import settings as project
from django.core.management import call_command
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from escalation.agent.binary import find_binary
from escalation.api.tools import ACTING, server_of
from escalation.drills.scenario import Reply, Scenario, ScriptedToolCall
from escalation.drills.scripted_api import ScriptedApi
from escalation.errors import RefusalCode
from sessions_app.models import Cycle, Incident
from tests.escalation.refusals import command_refused
from tests.factories import IncidentFactory, WatchFactory, three_tier_chain, user_with

MANAGE = Path(__file__).resolve().parents[2] / "manage.py"


def installed(tmp_path: Path, **variables: str) -> dict[str, str]:
    """Make an installation of its own. Return its environment."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "CLAUDEOPS_STATE_DIR": str(tmp_path / "state"),
        "CLAUDEOPS_ENV_FILE": str(tmp_path / "none"),
        **variables,
    }
    subprocess.run(
        [sys.executable, MANAGE, "upgrade"], env=environment, check=True, capture_output=True
    )
    return environment


def require_status_by_tool(tmp_path: Path, server: dict[str, Any]) -> None:
    """Let the real CLI call the tool `status` of a server."""
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


@pytest.mark.timeout(120)
def test_the_real_cli_reads_the_status_by_its_tool(tmp_path: Path) -> None:
    environment = installed(tmp_path)
    server = {"command": sys.executable, "args": [str(MANAGE), "mcp"], "env": environment}

    require_status_by_tool(tmp_path, server)


@pytest.fixture
def over_http(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Serve an installation. Yield the configuration of its MCP server for a client."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = installed(tmp_path, CLAUDEOPS_PORT=str(port))

    def run(*words: str) -> str:
        command = [sys.executable, str(MANAGE), *words]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout

    run("account", "add", "ada", "--role", "operator")
    token = run("token", "create", "mcp", "--scope", "read", "--as", "ada").split()[0]
    web = subprocess.Popen(
        [sys.executable, MANAGE, "web"], env=environment, stdout=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        yield {
            "type": "http",
            "url": f"http://127.0.0.1:{port}/mcp",
            "headers": {"Authorization": f"Bearer {token}"},
        }
    finally:
        web.terminate()
        web.wait(30)


def wait_for(port: int) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError("the web server does not listen")


@pytest.mark.timeout(180)
def test_the_real_cli_reads_the_status_over_http_with_a_token(
    tmp_path: Path, over_http: dict[str, Any]
) -> None:
    require_status_by_tool(tmp_path, over_http)


@pytest.mark.timeout(120)
def test_the_client_of_the_library_reads_over_http(over_http: dict[str, Any]) -> None:
    async def ask() -> tuple[set[str], Any]:
        async with (
            httpx2.AsyncClient(headers=over_http["headers"], timeout=60) as http,
            streamable_http_client(over_http["url"], http_client=http) as streams,
            ClientSession(streams[0], streams[1]) as session,
        ):
            await session.initialize()
            tools = await session.list_tools()
            return {tool.name for tool in tools.tools}, await session.call_tool("watches", {})

    offered, answer = anyio.run(ask)

    assert {"status", "chain", "costs"} <= offered
    assert "run_cycle" not in offered
    assert json.loads(answer.content[0].text) == []


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
