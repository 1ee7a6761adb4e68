"""What reaches a run, and what does not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from escalation.drills.scenario import Reply, ScriptedToolCall
from escalation.run.undo import undo
from sessions_app.history.commands import would_have_run
from sessions_app.models import Change, Cycle, Session
from tests.real_cli.conftest import report_call
from tests.real_cli.playing import conversation_text, offered_tools, tool_outputs


def bash(command: str) -> Reply:
    return Reply(calls=(ScriptedToolCall(tool="Bash", input={"command": command}),))


def test_environment_does_not_reach_the_tools_except_what_is_named(
    scripted_api, watch_cycle, monkeypatch, settings
):
    monkeypatch.setenv("DATABASE_PASSWORD", "swordfish")
    monkeypatch.setenv("KUBECONFIG", "/etc/kube")
    settings.CLAUDEOPS_PASS_ENV = ("KUBECONFIG",)
    scripted_api(bash("echo ${DATABASE_PASSWORD:-nothing} $KUBECONFIG"), *watch_cycle.healthy)

    cycle = watch_cycle.run()

    assert tool_outputs(cycle.sessions.get())[0] == "nothing /etc/kube"


def test_settings_of_the_project_directory_do_not_reach_a_run(scripted_api, watch_cycle):
    configured = watch_cycle.workdir / ".claude"
    configured.mkdir()
    rules = {"permissions": {"deny": ["Bash(echo:*)"]}, "env": {"PLANTED": "yes"}}
    (configured / "settings.json").write_text(json.dumps(rules))
    scripted_api(bash("echo planted=$PLANTED"), *watch_cycle.healthy)

    cycle = watch_cycle.run()

    assert tool_outputs(cycle.sessions.get())[0] == "planted="


def call(tool: str, **given: str) -> Reply:
    return Reply(calls=(ScriptedToolCall(tool=tool, input=given),))


def test_no_memory_file_of_the_working_directory_reaches_a_run(
    scripted_api, watch_cycle, cli_version
):
    """Whatever an earlier session wrote into such a file instructs nobody."""
    workdir = watch_cycle.workdir
    (workdir / "below").mkdir()
    (workdir / ".claude/rules").mkdir(parents=True)
    for name in ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", ".claude/CLAUDE.md"):
        (workdir / name).write_text("planted-words")
    for name in ("below/CLAUDE.md", ".claude/rules/rule.md"):
        (workdir / name).write_text("planted-words")
    (workdir / "below/notes.txt").write_text("the lamp is on")
    api = scripted_api(
        call("Read", file_path=str(workdir / "below/notes.txt")), *watch_cycle.healthy
    )

    watch_cycle.run()

    heard = " ".join(request.text() for request in api.requests)
    assert "the lamp is on" in heard
    assert "planted-words" not in heard


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_write_and_edit_do_not_change_configuration_files(
    scripted_api, watch_cycle, cli_version, settings, mode
):
    """Also without a sandbox, and also a file that is not there yet."""
    settings.CLAUDEOPS_SANDBOX = mode
    workdir = watch_cycle.workdir
    (workdir / "CLAUDE-OPS.md").write_text("Never touch db.")
    (workdir / "CLAUDE.md").write_text("Never touch db.")
    files = {name: str(workdir / name) for name in ("CLAUDE-OPS.md", "CLAUDE.md", "notes.txt")}
    scripted_api(
        *(call("Read", file_path=path) for path in (files["CLAUDE-OPS.md"], files["CLAUDE.md"])),
        *(
            call("Edit", file_path=path, old_string="Never", new_string="Always")
            for path in (files["CLAUDE-OPS.md"], files["CLAUDE.md"])
        ),
        call("Write", file_path=files["CLAUDE-OPS.md"], content="forged"),
        call("Write", file_path=str(workdir / ".claude/settings.json"), content="{}"),
        call("Write", file_path=str(workdir / ".mcp.json"), content="{}"),
        call("Write", file_path=files["notes.txt"], content="written"),
        *watch_cycle.healthy,
    )

    watch_cycle.run(tier=2)

    assert (workdir / "CLAUDE-OPS.md").read_text() == "Never touch db."
    assert sorted(path.name for path in workdir.iterdir()) == [
        "CLAUDE-OPS.md",
        "CLAUDE.md",
        "notes.txt",
    ]
    assert (workdir / "CLAUDE.md").read_text() == "Never touch db."
    assert (workdir / "notes.txt").read_text() == "written"


def test_a_prompt_that_looks_like_a_command_reaches_the_model_as_text(scripted_api, watch_cycle):
    (watch_cycle.workdir / "secret.txt").write_text("the cake is a lie")
    api = scripted_api(*watch_cycle.healthy)

    watch_cycle.run(prompt="/compact and look at @secret.txt！@secret.txt")

    heard = conversation_text(api.requests[0].body)
    assert "/compact and look at @ secret.txt！@ secret.txt" in heard
    assert "the cake is a lie" not in heard


SPELLINGS = {
    "after white space": "look at @{name}",
    "at the beginning of a line": "look\n@{name}",
    "after Chinese marks": "看。@{name} 看、@{name} 看？@{name} 看！@{name}",
    "after a space that is hard to see": "look\u3000@{name} \ufeff@{name} \u2028@{name}",
    "in quotes": 'look at @"{name}"',
    "with lines": "look at @{name}#L1-2",
    "by its path": "look at @./{name} and @{path}",
    "with a name that Python takes for space": "look at @\x1c{name} and @\x85{name}",
    "of a directory": "look at @./",
    "of an agent": "look at @agent-Explore",
}
SECRET = "the-cake-is-a-lie"


def test_no_spelling_of_a_mention_includes_a_file(scripted_api, watch_cycle, cli_version):
    """In the request, the instructions and the manifest; with every version of the CLI."""
    names = ("secret.txt", "\x1csecret.txt", "\x85secret.txt")
    for name in names:
        (watch_cycle.workdir / name).write_text(f"{SECRET}\n" * 3)
    path = watch_cycle.workdir / "secret.txt"
    words = "\n".join(text.format(name="secret.txt", path=path) for text in SPELLINGS.values())
    (watch_cycle.workdir / "CLAUDE-OPS.md").write_text(words)
    api = scripted_api(*watch_cycle.healthy)

    watch_cycle.run(prompt=words, instructions=words)

    heard = " ".join(request.text() for request in api.requests if request.main)
    assert "看。@ secret.txt" in heard
    assert SECRET not in heard
    assert "CLAUDE-OPS.md\\n" not in heard  # the directory's names
    assert "desire to invoke the agent" not in heard


@pytest.mark.smoke
def test_tools_that_the_model_sees_are_the_tiers_list(scripted_api, watch_cycle):
    api = scripted_api(*watch_cycle.healthy)

    watch_cycle.run()

    offered = offered_tools(api.requests[0].body)
    assert {"Bash", "Read", "Grep", "Glob", "WebFetch"} <= offered
    assert not offered & {"Write", "Edit", "NotebookEdit", "Skill", "Monitor", "TodoWrite"}


def test_manifest_and_instructions_are_in_the_first_prompt(scripted_api, watch_cycle):
    (watch_cycle.workdir / "CLAUDE-OPS.md").write_text("The lighthouse. Never switch it off.")
    api = scripted_api(*watch_cycle.healthy)

    watch_cycle.run(instructions="Look at the lamp first; it costs $5.")

    heard = conversation_text(api.requests[0].body)
    assert "The lighthouse. Never switch it off." in heard
    assert "Look at the lamp first; it costs $5." in heard


WRITES = ScriptedToolCall(tool="Write", input={"file_path": "written.txt", "content": "x"})
DRY_TIER_2 = (
    bash("touch touched.txt"),
    bash("systemctl restart web"),
    bash("python3 -c \"open('computed.txt', 'w')\""),
    Reply(calls=(WRITES,)),
    Reply(calls=(report_call(status="down"),)),
)


@pytest.mark.parametrize("mode", ["required", "off"])
def test_in_a_dry_run_a_higher_tier_can_change_nothing(
    scripted_api, watch_cycle, settings, mode, operator_client
):
    settings.CLAUDEOPS_SANDBOX = mode
    ask = Reply(calls=(report_call(status="down", escalate="needs a restart"),))
    api = scripted_api(ask, *DRY_TIER_2)

    cycle = watch_cycle.run(dry_run=True, max_tier=2)

    thought = cycle.sessions.get(tier=2)
    page = operator_client.get(thought.get_absolute_url()).content.decode()
    assert (thought.status, thought.model) == (Session.Status.COMPLETED, "sonnet")
    assert list(watch_cycle.workdir.glob("*.txt")) == []
    assert {"Write", "Edit"} <= offered_tools(api.requests[-1].body)
    # In a sandbox a text is not judged: its files are not writable.
    judged = ["touch touched.txt"] if mode == "off" else []
    assert [command.command for command in would_have_run([thought])] == [
        *judged,
        "systemctl restart web",
        "Write written.txt",
    ]
    assert would_have_run([thought])[-1].diff == "@@ -0,0 +1 @@\n+x"
    assert "What would have been run" in page
    assert "<code>systemctl restart web</code>" in page


def test_an_edit_of_tier_2_is_undone_and_files_of_commands_are_changes(
    scripted_api, watch_cycle, operator
):
    config = watch_cycle.workdir / "app.conf"
    config.write_bytes(b"pool = 5\r\n")
    ask = Reply(calls=(report_call(status="down", escalate="needs an edit"),))
    read = ScriptedToolCall(tool="Read", input={"file_path": str(config)})
    write = {"file_path": str(config), "content": "pool = 20\n"}
    scripted_api(
        ask,
        bash("echo made > by_command.txt"),
        Reply(calls=(read,)),
        Reply(calls=(ScriptedToolCall(tool="Write", input=write),)),
        Reply(calls=(report_call(status="healthy"),)),
    )

    cycle = watch_cycle.run(max_tier=2)

    changes = Change.objects.filter(session__cycle=cycle)
    edit = changes.get(kind=Change.Kind.EDIT)
    written = config.read_bytes()
    undo(edit, by=operator, way="terminal")
    assert b"20" in written
    assert config.read_bytes() == b"pool = 5\r\n"
    assert [change.action for change in changes.filter(kind=Change.Kind.FILE)] == [
        f"create {watch_cycle.workdir / 'by_command.txt'}"
    ]


def test_a_dry_run_stays_within_the_limit_of_its_watch(scripted_api, watch_cycle):
    scripted_api(Reply(calls=(report_call(status="down", escalate="needs a restart"),)))

    cycle = watch_cycle.run(dry_run=True, max_tier=1)

    assert cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert "the policy allows no tier above 1" in cycle.outcome_reason
    assert cycle.sessions.count() == 1


def test_max_tier_of_the_watch_stops_the_escalation(scripted_api, watch_cycle):
    scripted_api(Reply(calls=(report_call(status="down", escalate="needs a restart"),)))

    cycle = watch_cycle.run(max_tier=1)

    assert "the policy allows no tier above 1" in cycle.outcome_reason


ASK = Reply(
    calls=(
        ScriptedToolCall(
            tool="AskUserQuestion",
            input={
                "questions": [
                    {
                        "question": "Shall I restart web?",
                        "header": "Restart",
                        "multiSelect": False,
                        "options": [
                            {"label": "Yes", "description": "Restart it"},
                            {"label": "No", "description": "Leave it"},
                        ],
                    }
                ]
            },
        ),
    )
)


@pytest.mark.parametrize("configured", [False, True])
def test_a_resumed_session_continues_without_asking_the_user(
    scripted_api, watch_cycle, operator_client, settings, configured
):
    """Also where an operator has put the tool among the tier's own."""
    if configured:
        settings.CLAUDEOPS_TIERS = {
            number: replace(tier, allowed_tools=(*tier.allowed_tools, "AskUserQuestion"))
            for number, tier in settings.CLAUDEOPS_TIERS.items()
        }
    down = report_call(status="down", escalate="needs a restart")
    api = scripted_api(Reply(calls=(down,)), ASK, Reply(calls=(report_call(did="restarted web"),)))

    cycle = watch_cycle.run()

    second = cycle.sessions.get(tier=2)
    assert second.continued_by == Session.ContinuedBy.RESUME
    assert "AskUserQuestion" not in offered_tools(api.requests[-1].body)
    assert len(tool_outputs(second)) == 2  # the denial and the report: the run went on
    assert cycle.outcome == Cycle.Outcome.HEALTHY
    page = operator_client.get(second.get_absolute_url()).content.decode()
    assert "Denied · AskUserQuestion" in page
    assert "Nobody answers questions during a run" in page


def test_argv_of_a_run_holds_no_secret(scripted_api, watch_cycle):
    scripted_api(*watch_cycle.healthy)

    cycle = watch_cycle.run()

    assert "test-key" not in json.dumps(cycle.sessions.get().argv)
