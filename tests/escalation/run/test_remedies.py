"""Remedies of a watch: read for a run, pinned as a person accepts them, told in the prompt."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from escalation.command_policy.understanding import CommandEffect
from escalation.errors import RefusalCode
from escalation.run import remedies as module
from escalation.run.command_checks import WITHDRAWN, RunChanges
from escalation.run.prompts import rendered
from escalation.run.remedies import (
    UsedApproval,
    accept,
    declared_remedies,
    proposed,
    save,
    state_of,
)
from sessions_app.archive.encryption_key import old_file_contents
from sessions_app.history.resume import Resume
from sessions_app.models import Approval, Change, FileContent, IncidentEvent, Remedy
from sessions_app.models.installation import shared_now
from sessions_app.text import estimated_tokens
from tests.escalation.prompt_cases import situations
from tests.escalation.refusals import refused
from tests.escalation.run.test_changes import ask, record
from tests.factories import (
    ApprovalFactory,
    ChangeFactory,
    CycleFactory,
    IncidentFactory,
    RemedyFactory,
    ServiceStateFactory,
    SessionFactory,
    WatchFactory,
)
from tests.tables import each_row

pytestmark = pytest.mark.django_db
SCRIPT = "#!/bin/sh\necho accepted\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "operator" / "fix.sh"
    file.parent.mkdir()
    file.write_text(SCRIPT)
    return file


@pytest.fixture
def watch(tmp_path: Path):
    workdir = tmp_path / "workdir"
    workdir.mkdir()
    return WatchFactory(workdir=str(workdir))


def new(watch: Any, script: Path, **fields: Any) -> Remedy:
    row = Remedy(
        **{
            "watch": watch,
            "name": "fix",
            "description": "Fixes it.",
            "command": [str(script)],
            "kind": Remedy.Kind.OTHER,
            **fields,
        }
    )
    save(row, by="ann")
    return row


def test_a_new_remedy_is_pinned_to_its_script(watch, script):
    row = new(watch, script)

    [found] = declared_remedies(watch)
    assert (found.script, found.waits) == (SCRIPT.encode(), "")
    assert (row.accepted_by, row.script_id is not None) == ("ann", True)


def test_the_accepted_content_is_stored_encrypted_and_kept_while_it_is_used(watch, script):
    row = new(watch, script)

    kept = FileContent.objects.get()
    assert b"accepted" not in bytes(kept.content)
    assert not old_file_contents(shared_now()).exists()
    module.remove(row)
    assert old_file_contents(shared_now()).exists()


def test_a_changed_script_waits_until_its_difference_is_accepted(watch, script):
    row = new(watch, script)
    script.write_text("#!/bin/sh\necho hostile\n")

    state = state_of(row)
    assert "was changed" in declared_remedies(watch)[0].waits
    assert state.difference[1:] == (" #!/bin/sh", "-echo accepted", "+echo hostile")
    assert state.objection == ""
    accept(row, by="bob", token=state.token)
    assert declared_remedies(watch)[0].waits == ""
    assert (Remedy.objects.get().accepted_by, state_of(row).waits) == ("bob", "")


def test_a_script_that_changed_again_since_it_was_shown_is_not_accepted(watch, script):
    row = new(watch, script)
    script.write_text("first")
    seen = state_of(row).token
    script.write_text("second")

    with refused(RefusalCode.FILE_CHANGED):
        accept(row, by="bob", token=seen)

    assert "was changed" in declared_remedies(watch)[0].waits


def test_an_edit_of_the_declaration_does_not_accept_a_changed_script(watch, script):
    row = new(watch, script)
    script.write_text("hostile")

    row.description = "Another text."
    save(row, by="bob")

    assert "was changed" in declared_remedies(watch)[0].waits


@pytest.mark.parametrize("how", ["removed", "a directory", "a pipe", "too large", "a link"])
def test_a_script_that_is_no_longer_a_file_waits(watch, script, how, tmp_path):
    row = new(watch, script)
    script.unlink()
    match how:
        case "a directory":
            script.mkdir()
        case "a pipe":
            os.mkfifo(script)
        case "too large":
            script.write_bytes(b"x" * (1024 * 1024 + 1))
        case "a link":
            (Path(watch.workdir) / "fix.sh").write_text(SCRIPT)
            script.symlink_to(Path(watch.workdir) / "fix.sh")

    assert declared_remedies(watch)[0].waits
    assert state_of(row).objection
    with refused(RefusalCode.FILE):
        accept(row, by="ann")


def test_a_script_where_an_agent_may_write_is_refused_and_waits(watch, script):
    inside = Path(watch.workdir) / "fix.sh"
    inside.write_text(SCRIPT)
    with pytest.raises(ValidationError, match="an agent may write"):
        new(watch, inside)

    new(watch, script)
    watch.grants = f"write:{script.parent}"
    watch.save()

    assert "an agent may write" in declared_remedies(watch)[0].waits


def test_a_disabled_remedy_is_not_declared(watch, script):
    new(watch, script, enabled=False)

    assert declared_remedies(watch) == ()
    assert declared_remedies(None) == ()


def test_services_of_the_watch_are_values_of_a_parameter(watch):
    RemedyFactory(watch=watch)
    ServiceStateFactory(watch=watch, service="web", name="Web")
    ServiceStateFactory(service="other", name="other")

    assert declared_remedies(watch)[0].services == ("Web", "web")


def test_a_second_remedy_of_the_same_name_is_refused(watch, script):
    new(watch, script)

    with pytest.raises(ValidationError, match="remedy of that name"):
        new(watch, script)


def test_a_remedy_counts_for_the_cooldown_like_a_restart_by_command():
    session = SessionFactory(running=True, tier=2)
    stamp = module.stamp_of(RemedyFactory(watch=session.cycle.watch))
    effect = CommandEffect(kind="restart", service="web", action="remedy restart web")
    by_name = replace(record(), command="remedy restart web", effects=(effect,), remedy=stamp)
    changes = RunChanges(session)

    answers = [ask(changes, one)[0] for one in (by_name, record(), replace(by_name, call="c"))]

    assert [answer.rule if answer else None for answer in answers] == [None, None, "cooldown"]
    assert list(Change.objects.order_by("pk").values_list("service", "command")) == [
        ("web", "remedy restart web"),
        ("web", "docker restart web"),
    ]


@pytest.mark.parametrize("how", ["changed", "disabled", "removed"])
def test_a_remedy_that_a_person_withdrew_since_the_session_began_is_refused(how):
    session = SessionFactory(running=True, tier=2)
    row = RemedyFactory(watch=session.cycle.watch)
    asked = replace(record(), command="remedy status", effects=(), remedy=module.stamp_of(row))
    changes = RunChanges(session)
    assert ask(changes, asked) == [None]

    if how == "removed":
        row.delete()
    else:
        row.enabled = how != "disabled"
        row.save()

    assert ask(changes, asked) == [WITHDRAWN]


MANY = tuple((f"remedy-{number} SERVICE", "Does something useful. " * 8) for number in range(30))


def test_the_escalation_prompt_keeps_its_limit_with_any_number_of_remedies():
    escalations = [
        context
        for _name, context in situations()
        if context.is_escalation and isinstance(context.continuation, Resume)
    ]

    for context in escalations:
        for remedies in (MANY[:1], MANY[:5], MANY):
            prompt = rendered(replace(context, remedies=remedies))
            assert estimated_tokens(prompt) < 500


def test_the_prompt_lists_remedies_except_in_a_dry_run():
    one = (("restart SERVICE", "Restarts a container."),)
    found = {
        (context.dry_run, "restart SERVICE" in rendered(replace(context, remedies=one)))
        for _name, context in situations()
        if context.is_escalation and not context.attempts and not context.request
    }

    assert found == {(False, True), (True, False)}


def used(command: str = "docker restart web", **fields: Any) -> UsedApproval:
    given: dict[str, Any] = {"tier": 2, "grants": ("docker",), "is_verified": True, **fields}
    return UsedApproval(command=command, **given)


@each_row(
    ("approvals", "names"),
    [
        ([used()] * 3, ["restart-web"]),
        ([used()] * 2, []),
        ([*([used()] * 9), used(is_verified=False)], []),
        ([used("bash -c id")] * 3, []),
        ([used("docker restart web | cat")] * 3, []),
        ([used("docker restart db")] * 3, []),
        ([used("curl -s http://web/", grants=("http",))] * 3, ["curl"]),
    ],
)
def test_a_command_that_held_each_time_is_proposed(approvals, names):
    effects = {"docker restart web": ("restart", "web")}

    found = proposed(approvals, effects, {("docker", "restart", "db")})

    assert [one.name for one in found] == names


def test_a_proposal_is_made_a_remedy_once(watch):
    cycle = CycleFactory(watch=watch)
    incident = IncidentFactory(watch=watch)
    incident.cycles.add(cycle)
    incident.events.create(kind=IncidentEvent.Kind.VERIFIED)
    for _time in range(3):
        session = SessionFactory(cycle=cycle, tier=2)
        ChangeFactory(session=session, command="docker restart web", service="web", exit_code=0)
        ApprovalFactory(
            of_a_command=True,
            session=session,
            command="docker restart web",
            grants=["docker"],
            state=Approval.State.APPROVED,
            used_at=shared_now(),
        )

    [one] = module.proposals(watch)
    assert (one.times, one.kind, one.service) == (3, "restart", "web")
    row = module.adopt(watch, one.command, by="ann")
    assert (row.command, row.grants, row.tier) == (["docker", "restart", "web"], "docker", 2)
    assert module.proposals(watch) == ()
    with refused(RefusalCode.INVALID_CHOICE):
        module.adopt(watch, one.command, by="ann")
