"""Pages about the sandbox: what is in force, proofs, decisions of the command policy."""

from __future__ import annotations

import html
from typing import Any

import pytest
from django.urls import reverse

from sessions_app.models import SandboxProof, SessionEvent
from tests.factories import CommandEventFactory, SandboxProofFactory, SessionFactory

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


def trial(
    command: str, *, ok: bool = True, decision: str = "deny", tier: int = 1
) -> dict[str, Any]:
    return {
        "tier": tier,
        "command": command,
        "expect": "deny",
        "decision": decision,
        "happened": "nothing" if ok else "a container was restarted",
        "ok": ok,
        "rule": "needs Tier 2",
    }


def page(client, name: str, *args: object, **parameters: str) -> str:
    response = client.get(reverse(f"web:{name}", args=args), parameters)
    return html.unescape(response.content.decode())


def test_without_a_proof_the_page_says_how_to_get_one(operator_client):
    assert "claudeops sandbox prove" in page(operator_client, "sandbox")


def test_the_last_proof_of_each_kind_is_shown_with_its_host(operator_client):
    SandboxProofFactory(kernel="5.0")
    SandboxProofFactory(kernel="6.6", rows=[trial("docker restart web")])
    SandboxProofFactory(kind=SandboxProof.Kind.ATTACKS, rows=[trial("cat /proc/1/environ")])

    shown = page(operator_client, "sandbox")

    assert "kernel 6.6" in shown
    assert "CLI 2.1.325, bubblewrap 0.8.0" in shown
    assert "docker restart web" in shown
    assert "cat /proc/1/environ" in shown


def test_the_page_explains_the_trials_and_the_decisions(operator_client):
    attack = {key: value for key, value in trial("env").items() if key != "expect"}
    SandboxProofFactory(rows=[trial("docker restart web")])
    SandboxProofFactory(kind=SandboxProof.Kind.ATTACKS, rows=[attack])

    shown = page(operator_client, "sandbox")

    assert "<em>isolate</em> none outside the working directory" in shown
    assert "Each attack was played through the real CLI" in shown
    assert '<td data-label="Expected">nothing</td>' in shown


def test_the_programs_of_a_command_are_listed_with_their_decisions(operator_client):
    vectors = [
        {"command": "ssh nas uptime", "verdict": "allow", "rule": "understood"},
        {"command": "ssh nas reboot", "verdict": "deny", "rule": "for no tier"},
    ]
    odd = {**trial("odd"), "vectors": "nonsense"}
    SandboxProofFactory(rows=[{**trial("./check.sh"), "vectors": vectors}, odd])

    shown = page(operator_client, "sandbox")

    assert "allow (understood): <code>ssh nas uptime</code>" in shown
    assert "deny (for no tier): <code>ssh nas reboot</code>" in shown


def test_a_long_proof_says_how_many_trials_it_has(operator_client):
    SandboxProofFactory(rows=[trial(f"trial-{number}") for number in range(1200)])

    assert "1000 trials of 1200" in page(operator_client, "sandbox")


def test_trials_can_be_filtered_by_failure_and_tier(operator_client):
    rows = [trial("held-1"), trial("failed-1", ok=False), trial("failed-2", ok=False, tier=2)]
    SandboxProofFactory(rows=rows, failed=2)

    failed = page(operator_client, "sandbox", failed="yes")
    failed_at_2 = page(operator_client, "sandbox", failed="yes", tier="2")

    assert "held-1" not in failed
    assert "failed-1" in failed
    assert "failed-1" not in failed_at_2
    assert "failed-2" in failed_at_2
    assert "a container was restarted" in failed_at_2


def test_changed_results_are_listed(operator_client):
    SandboxProofFactory(rows=[trial("sneaky"), trial("old"), trial("same")], cli_version="2.1.1")
    SandboxProofFactory(rows=[trial("sneaky", ok=False, decision="allow"), trial("same")])

    shown = page(operator_client, "sandbox")

    assert "1 result changed" in shown
    assert "deny, passed" in shown
    assert "1 removed" in shown
    assert "The CLI was 2.1.1" in shown


def test_rows_of_any_shape_are_shown(operator_client):
    SandboxProofFactory(rows=[None, 7, {"command": ["odd"]}, {"tier": {}, "ok": "yes"}], tried=4)
    SandboxProof.objects.filter(rows=[]).update(rows="nonsense")

    assert "Effect" in page(operator_client, "sandbox")


def test_a_worse_proof_is_announced_until_it_is_accepted(operator_client, operator):
    proof = SandboxProofFactory(worse=True)
    before = page(operator_client, "sandbox") + page(operator_client, "overview")

    operator_client.post(reverse("web:accept_proof", args=[proof.pk]), {"confirm": "on"})

    after = page(operator_client, "sandbox")
    assert before.count("Tiers above Tier 1 wait") == 2
    assert "Tiers above Tier 1 wait" not in after + page(operator_client, "overview")
    assert f"Accepted by {operator.username}" in after


def test_decisions_are_counted_by_day(operator_client):
    session = SessionFactory()
    for verdict in ("deny", "deny", "ask", "ask", "ask", "isolate", "allow"):
        CommandEventFactory(session=session, verdict=verdict)

    shown = page(operator_client, "sandbox")

    cells = "".join(f'<td class="number">{count}</td>' for count in (2, 3, 1, 1))
    assert cells in shown


@pytest.mark.parametrize(
    ("sandbox", "key", "grants"), [("sandbox", "proxy", "grants"), ("rooms", "gateway", "doors")]
)
def test_a_session_shows_its_sandbox_also_of_version_0_2(operator_client, sandbox, key, grants):
    session = SessionFactory(
        sandbox={
            sandbox: "bubblewrap 0.8.0",
            "key": key,
            grants: ["docker", "ssh"],
            "writable": ["/srv/shop"],
            "limits": "512 processes",
        }
    )

    shown = page(operator_client, "session", session.pk)

    for words in (
        "bubblewrap 0.8.0",
        "held by the API proxy",
        ">ssh<",
        "/srv/shop",
        "512 processes",
    ):
        assert words in shown


def test_a_session_without_a_sandbox_shows_the_reason(operator_client):
    sandbox = {"why_no_sandbox": "no user namespaces", "why_key_inside": "Bedrock", "key": "inside"}
    shown = page(operator_client, "session", SessionFactory(sandbox=sandbox).pk)

    assert "no user namespaces" in shown
    assert "Bedrock" in shown


def test_the_overview_shows_the_sandbox_in_force(operator_client, settings):
    settings.CLAUDEOPS_SANDBOX = "off"

    assert "CLAUDEOPS_SANDBOX=off" in page(operator_client, "overview")


def test_a_session_lists_its_commands_with_denied_ones_first(operator_client):
    session = SessionFactory()
    CommandEventFactory(session=session, sequence=1, command="uptime")
    CommandEventFactory(
        session=session,
        sequence=2,
        command="docker restart web",
        verdict="deny",
        more={"reason": "Not at Tier 1: ask for escalation."},
    )

    shown = page(operator_client, "session", session.pk)
    table = shown[shown.index('id="commands"') :]

    assert "2 judged by the command policy" in table
    assert table.index("docker restart web") < table.index("uptime")
    assert "Not at Tier 1: ask for escalation." in table
    assert "did not run" in table
    assert "1.2 ms" in table


def test_commands_can_be_filtered_by_verdict(operator_client):
    session = SessionFactory()
    CommandEventFactory(session=session, command="uptime")
    CommandEventFactory(session=session, command="python3 -c x", verdict="isolate")

    shown = page(operator_client, "session_commands", session.pk, verdict="isolate")

    assert "python3 -c x" in shown
    assert "uptime" not in shown


def test_the_end_of_a_command_is_shown_with_it(operator_client):
    session = SessionFactory()
    ended = {"source": SessionEvent.Source.SUPERVISOR, "kind": "command_end", "session": session}
    CommandEventFactory(session=session, command="first", more={"call": "a"})
    CommandEventFactory(session=session, command="second", more={"call": "b"})
    CommandEventFactory(**ended, payload={"call": "b", "exit_code": 7, "milliseconds": 1500})

    shown = page(operator_client, "session_commands", session.pk)

    assert shown.index("not known") < shown.index("second") < shown.index("exit 7")


def test_an_unchanged_table_of_commands_is_not_sent_again(operator_client):
    session = SessionFactory(running=True)
    CommandEventFactory(session=session, sequence=3)
    url = reverse("web:session_commands", args=[session.pk])

    same = operator_client.get(url, {"version": "3-open"}, headers=HTMX)
    other = operator_client.get(url, {"version": "2-open"}, headers=HTMX)

    assert (same.status_code, other.status_code) == (204, 200)
    assert "<html" not in other.content.decode()


@pytest.mark.parametrize("payload", [{}, {"command": 7, "grants": "x", "milliseconds": True}, [1]])
def test_a_command_event_of_any_shape_is_shown(operator_client, payload):
    session = SessionFactory()
    CommandEventFactory(session=session, payload=payload)

    assert "1 judged by the command policy" in page(operator_client, "session", session.pk)


def test_the_live_output_has_a_line_for_a_denied_command(operator_client):
    session = SessionFactory()
    CommandEventFactory(
        session=session,
        command="docker restart web",
        verdict="deny",
        more={"rule": "needs Tier 2", "reason": "Ask for escalation."},
    )

    assert "Command · denied · needs Tier 2" in page(operator_client, "session", session.pk)
