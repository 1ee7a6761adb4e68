"""The real CLI works in its sandbox, and the sandbox holds."""

from __future__ import annotations

import pytest

from escalation.drills.scenario import Reply, ScriptedToolCall
from sessions_app.models import Session
from tests.real_cli.playing import tool_outputs


def bash(command: str) -> Reply:
    return Reply(calls=(ScriptedToolCall(tool="Bash", input={"command": command}),))


def verdicts(session: Session) -> list[str]:
    decided = session.events.filter(kind="command").order_by("sequence")
    return [event.payload["verdict"] for event in decided]


@pytest.mark.usefixtures("cli_version")
def test_a_run_works_in_its_sandbox(scripted_api, watch_cycle):
    (watch_cycle.workdir / "shop").mkdir()
    (watch_cycle.workdir / "shop" / "stock.txt").write_text("7 lamps\n")
    scripted_api(
        bash("cd shop && pwd"),
        bash("cat stock.txt"),
        bash("ls no-such-file"),
        bash("python3 -c 'print(6 * 7)'"),
        bash("sh -c 'systemctl restart web'"),
        *watch_cycle.healthy,
    )

    session = watch_cycle.run().sessions.get()

    assert session.status == Session.Status.COMPLETED, session.error
    assert session.sandbox["sandbox"].startswith("bubblewrap")
    here, stock, missing, computed, denied, _report = tool_outputs(session)
    assert here.endswith("/shop")
    assert "7 lamps" in stock, "the directory of the last command is kept"
    assert "no-such-file" in missing
    assert "42" in computed
    assert "Ask for escalation" in denied
    # `ls` and `systemctl` are judged besides the text that executes them.
    assert verdicts(session) == [*["isolate"] * 3, "allow", *["isolate"] * 2, "deny"]


@pytest.mark.usefixtures("cli_version")
def test_key_state_and_supervisor_are_unreachable(scripted_api, watch_cycle, own_state):
    scripted_api(
        bash(f"env; cat /proc/*/environ | tr '\\0' '\\n'; ls {own_state}"),
        bash(f"touch {watch_cycle.workdir}/planted || true"),
        Reply(
            calls=(ScriptedToolCall(tool="Read", input={"file_path": f"{own_state}/secret_key"}),)
        ),
        *watch_cycle.healthy,
    )
    (own_state).mkdir(exist_ok=True)
    (own_state / "secret_key").write_text("swordfish")

    session = watch_cycle.run().sessions.get()

    said = "\n".join(tool_outputs(session))
    assert "test-key" not in said
    assert "swordfish" not in said
    assert "ANTHROPIC_API_KEY" not in said
    assert "secret_key" not in tool_outputs(session)[0]
    assert not (watch_cycle.workdir / "planted").exists()


def test_the_write_tool_fails_at_tier_1_and_works_at_tier_2(scripted_api, watch_cycle):
    note = watch_cycle.workdir / "note.txt"
    scripted_api(
        bash(f'python3 -c \'open("{note}", "w").write("x")\''),
        bash("tee note.txt <<< mended"),
        *watch_cycle.healthy,
    )

    first = watch_cycle.run(tier=1).sessions.get()
    assert not note.exists()
    assert "Read-only file system" in tool_outputs(first)[0]


def test_tier_2_writes_in_its_directory_and_nowhere_else(scripted_api, watch_cycle, tmp_path):
    note, outside = watch_cycle.workdir / "note.txt", tmp_path / "outside"
    outside.mkdir()
    write = {"file_path": str(outside / "note.txt"), "content": "x"}
    scripted_api(
        bash("echo mended > note.txt"),
        bash(f'python3 -c \'open("{outside}/x", "w")\''),
        Reply(calls=(ScriptedToolCall(tool="Write", input=write),)),
        *watch_cycle.healthy,
    )

    session = watch_cycle.run(tier=2, max_tier=2).sessions.get()

    assert note.read_text() == "mended\n"
    assert list(outside.iterdir()) == []
    assert session.sandbox["writable"] == [str(watch_cycle.workdir)]


def test_the_tokens_of_a_run_without_a_result_are_counted_by_the_api_proxy(
    scripted_api, watch_cycle, settings
):
    """It is killed while a command runs: what it had used until then is known."""
    scripted_api(bash("kill -9 $PPID; sleep 30"), *watch_cycle.healthy)
    settings.CLAUDEOPS_TOOL_IDLE_TIMEOUT = 2

    session = watch_cycle.run().sessions.get()

    assert not session.events.filter(kind__startswith="result").exists()
    assert session.input_tokens > 0
    assert session.output_tokens > 1  # the stream alone says 1, from the start of the message
