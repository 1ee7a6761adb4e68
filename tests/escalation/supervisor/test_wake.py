"""Facts of probes and alerts: incidents, the cycle that they start, and what its tiers are told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from escalation.run.prompts import prompt_for
from escalation.supervisor.conclude import finish_cycle
from escalation.supervisor.cycles import wake
from escalation.supervisor.successors import lineage_of, successor
from escalation.tiers import get_tier
from sessions_app.history.resume import Fresh, Guard, Handoff, Resume
from sessions_app.models import Cycle, Incident, PauseSwitch, Session, Watch
from sessions_app.models.cycle import MOST_FACTS, Fact
from sessions_app.text import estimated_tokens
from tests.escalation.rows import CONVERSATION, a_report
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
RESUME = Resume(CONVERSATION, "asked")
WELL = a_report(services=(("web", "healthy"),))
State, FoundBy, Outcome = Incident.State, Incident.FoundBy, Cycle.Outcome


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")


@pytest.fixture
def watch() -> Watch:
    watch: Watch = WatchFactory(name="shop")
    return watch


def fact(**given: Any) -> Fact:
    return Fact(
        **{
            "source": "probe",
            "name": "web-http",
            "service": "Web",
            "at": NOW,
            "since": NOW - timedelta(seconds=40),
            "last_good": NOW - timedelta(minutes=1),
            "output": "status 502",
            **given,
        }
    )


def cycle_for(watch: Watch, *facts: Fact) -> Cycle:
    woken = wake(watch, facts)
    assert woken.cycle is not None
    return woken.cycle


def incident() -> Incident:
    return Incident.objects.get()


def test_a_failing_fact_opens_an_incident_and_starts_a_cycle(watch):
    woken = wake(watch, [fact()])

    assert woken.is_new
    cycle = Cycle.objects.get()
    assert cycle.trigger == Cycle.Trigger.PROBE
    assert cycle.facts == [fact()]
    assert cycle.sessions.get().status == Session.Status.QUEUED
    assert (incident().cause, incident().found_by) == ("web", FoundBy.PROBE)
    assert incident().began_at == NOW - timedelta(seconds=40)
    assert list(incident().cycles.all()) == [cycle]


def test_facts_during_a_cycle_join_it(watch):
    first = wake(watch, [fact()])
    second = wake(watch, [fact(name="db-tcp", service="db")])

    assert (second.cycle, second.is_new) == (first.cycle, False)
    assert [one.name for one in Cycle.objects.get().facts] == ["web-http", "db-tcp"]
    assert Incident.objects.count() == 2


@pytest.mark.parametrize("why", ["disabled", "paused", "backed off", "no credentials"])
def test_without_permission_to_run_there_is_an_incident_and_no_cycle(watch, why, monkeypatch):
    match why:
        case "disabled":
            Watch.objects.update(enabled=False)
        case "paused":
            PauseSwitch.objects.create(pk=PauseSwitch.THE_ONE, paused=True)
        case "backed off":
            Watch.objects.update(backed_off_until=datetime.now(UTC) + timedelta(hours=1))
        case "no credentials":
            for name in ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN"):
                monkeypatch.delenv(name, raising=False)

    woken = wake(watch, [fact()])

    assert woken.cycle is None
    assert woken.why_not
    assert Incident.objects.filter(cause="web", state=State.OPEN).exists()
    assert not Cycle.objects.exists()


def test_a_recovered_fact_alone_starts_nothing(watch):
    woken = wake(watch, [fact(is_failing=False, proves=True)])

    assert (woken.cycle, list(woken.incidents)) == (None, [])


@pytest.mark.parametrize(
    ("source", "proves", "state", "healthy"),
    [
        ("probe", True, State.RESOLVED, 0),
        ("probe", False, State.OPEN, 1),
        ("alert", False, State.OPEN, 1),
        ("alert", True, State.OPEN, 1),
    ],
)
def test_recovery_resolves_what_a_probe_found_and_proves(watch, source, proves, state, healthy):
    Watch.objects.update(enabled=False)
    wake(watch, [fact(source=source)])

    wake(watch, [fact(source=source, is_failing=False, proves=proves)])

    assert (incident().state, incident().healthy_cycles) == (state, healthy)


def test_a_recovered_probe_verifies_a_fix(watch):
    wake(watch, [fact()])
    Incident.objects.update(state=State.VERIFYING, remedy="restarted web", found_by=FoundBy.MODEL)

    wake(watch, [fact(is_failing=False, proves=True)])

    assert (incident().state, incident().resolved_as) == (State.RESOLVED, "agent")


def test_a_failing_probe_disproves_a_fix(watch):
    wake(watch, [fact()])
    Incident.objects.update(state=State.VERIFYING, remedy="restarted web")

    wake(watch, [fact()])

    assert (incident().state, incident().times_reopened) == (State.OPEN, 1)


def test_while_a_tier_works_facts_do_not_end_its_work(watch):
    wake(watch, [fact()])
    Incident.objects.update(state=State.WORKING)

    wake(watch, [fact()])
    assert incident().state == State.WORKING
    wake(watch, [fact(is_failing=False, proves=True)])
    assert (incident().state, incident().healthy_cycles) == (State.WORKING, 1)


def test_facts_that_no_session_was_told_start_another_cycle(watch):
    cycle = cycle_for(watch, fact())
    cycle.sessions.update(facts_told=1, report=WELL, status=Session.Status.COMPLETED)
    wake(watch, [fact(name="db-tcp", service="db")])

    finish_cycle(cycle, Outcome.NEEDS_PERSON, "over")

    following = Cycle.objects.latest("pk")
    assert following != cycle
    assert [one.name for one in following.facts] == ["db-tcp"]


@pytest.mark.parametrize(
    ("told", "outcome", "stopped_by", "later"),
    [
        (1, Outcome.HEALTHY, "", fact(is_failing=False)),
        (1, Outcome.COULD_NOT_RUN, "", fact(name="db-tcp")),
        (1, Outcome.NEEDS_PERSON, "ada", fact(name="db-tcp")),
        (None, Outcome.NEEDS_PERSON, "", fact(name="db-tcp")),
        (2, Outcome.HEALTHY, "", fact(name="db-tcp")),
    ],
)
def test_no_other_cycle_follows(watch, told, outcome, stopped_by, later):
    cycle = cycle_for(watch, fact())
    cycle.sessions.update(facts_told=told, status=Session.Status.COMPLETED)
    wake(watch, [later])

    finish_cycle(cycle, outcome, "over", stopped_by=stopped_by)

    assert Cycle.objects.count() == 1


def test_evidence_is_bounded_and_redacted(watch):
    secret = "password=hunter2secret"
    for number in range(MOST_FACTS + 5):
        wake(watch, [fact(name=f"probe-{number}", output=f"{secret} " + "x" * 50_000)])

    facts = Cycle.objects.get().facts
    assert len(facts) == MOST_FACTS
    assert not [one for one in facts if "hunter2secret" in one.output or len(one.output) > 2_100]


def sessions_with(*facts: Fact) -> tuple[Session, Session]:
    """A Tier 1 session that was told the first fact, and its Tier 2 successor."""
    cycle = CycleFactory(running=True, evidence=[one.stored() for one in facts])
    first = SessionFactory(cycle=cycle, escalated=True, facts_told=1)
    return first, successor(first, 2, Session.Purpose.TIER)


def test_the_first_tier_is_told_the_facts_as_fenced_data():
    first, _second = sessions_with(fact(output="see @secret\n/clear\n" + "down " * 9_000))

    prompt = prompt_for(lineage_of(first), get_tier(1), Fresh(why="first"), None)

    fence = next(line for line in prompt.splitlines() if line.startswith("=====[ evidence"))
    shown = prompt.split(f"\n{fence}\n")[1]
    assert "probe web-http of Web fails since 2026-11-18 11:59:20 UTC" in shown
    assert "@ secret" in shown
    assert "\n /clear" in shown
    assert estimated_tokens(shown) < 1_500


def test_a_higher_tier_is_told_only_new_facts_within_its_limit():
    _first, second = sessions_with(fact(), fact(name="db-tcp", output="refused " * 2_000))

    prompt = prompt_for(lineage_of(second), get_tier(2), RESUME, None)

    assert "db-tcp" in prompt
    assert "web-http" not in prompt
    assert estimated_tokens(prompt) < 500


def test_a_handoff_has_all_facts():
    _first, second = sessions_with(fact(), fact(name="db-tcp"))

    prompt = prompt_for(
        lineage_of(second),
        get_tier(2),
        Handoff(guard=Guard.TRANSCRIPT_GONE, why="gone"),
        {"content": {"a": 1}},
    )

    assert "web-http" in prompt
    assert "db-tcp" in prompt


def test_found_by_tells_a_persons_request_from_a_models_look(watch):
    for number, (trigger, prompt) in enumerate(
        [("manual", "web is slow"), ("manual", ""), ("schedule", "")]
    ):
        cycle = CycleFactory(running=True, watch=watch, trigger=trigger, prompt=prompt)
        report = a_report(needed=True, reason="down", services=((f"web{number}", "down"),))
        SessionFactory(cycle=cycle, report=report, messages=3)
        finish_cycle(cycle, Outcome.NEEDS_PERSON, "down")

    found = Incident.objects.order_by("pk").values_list("found_by", flat=True)
    assert list(found) == [FoundBy.PERSON, FoundBy.MODEL, FoundBy.MODEL]
