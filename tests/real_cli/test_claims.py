"""Claims of a report are compared with the commands that ran, with the real CLI and sandbox."""

from __future__ import annotations

from escalation.drills.scenario import Reply, ScriptedToolCall
from sessions_app.models import Change, Cycle
from tests.real_cli.conftest import report_call


def bash(command: str) -> Reply:
    return Reply(calls=(ScriptedToolCall(tool="Bash", input={"command": command}),))


def test_edits_are_stored_with_their_diffs(scripted_api, watch_cycle):
    config = watch_cycle.workdir / "app.conf"
    config.write_text("workers = 1\nport = 80\n")
    new = str(watch_cycle.workdir / "new.conf")
    replaced = {"file_path": str(config), "old_string": "workers = 1", "new_string": "workers = 4"}
    missing = {"file_path": str(config), "old_string": "nowhere", "new_string": "x"}
    scripted_api(
        Reply(calls=(ScriptedToolCall(tool="Read", input={"file_path": str(config)}),)),
        Reply(calls=(ScriptedToolCall(tool="Edit", input=replaced),)),
        Reply(calls=(ScriptedToolCall(tool="Edit", input=missing),)),
        Reply(
            calls=(ScriptedToolCall(tool="Write", input={"file_path": new, "content": "a\nb\n"}),)
        ),
        Reply(calls=(report_call(did="corrected app.conf"),)),
    )

    cycle = watch_cycle.run(tier=2)

    edited, written = Change.objects.order_by("pk")
    assert config.read_text().startswith("workers = 4")
    assert (edited.kind, edited.path, edited.watch) == ("edit", str(config), cycle.watch)
    assert "-workers = 1\n+workers = 4" in edited.diff
    assert (written.path, written.diff.endswith("+a\n+b")) == (new, True)
    assert cycle.outcome == Cycle.Outcome.FIXED


def test_a_report_with_a_claim_that_failed_is_not_fixed(scripted_api, watch_cycle):
    scripted_api(
        bash("systemctl restart no-such-unit"),
        Reply(calls=(report_call(did="restarted no-such-unit"),)),
    )

    cycle = watch_cycle.run(tier=2)

    change = Change.objects.get()
    assert change.has_failed
    assert cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert "the record says otherwise: systemctl restart no-such-unit" in cycle.outcome_reason


def test_a_report_with_a_claim_that_was_denied_is_not_fixed(scripted_api, watch_cycle):
    scripted_api(bash("docker restart web"), Reply(calls=(report_call(did="docker restart web"),)))

    cycle = watch_cycle.run(tier=1)

    assert not Change.objects.exists()
    assert cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert "denied" in cycle.outcome_reason


def test_a_claim_without_a_matching_command_is_healthy_and_not_fixed(scripted_api, watch_cycle):
    scripted_api(Reply(calls=(report_call(did="restarted web"),)))

    cycle = watch_cycle.run(tier=2)

    assert cycle.outcome == Cycle.Outcome.HEALTHY
    assert "not in the record: restarted web" in cycle.outcome_reason
