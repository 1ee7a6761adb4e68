"""Another model and lower limits for one run: what is allowed, and which sessions it applies to."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from escalation.errors import RefusalCode
from escalation.run.prepare import effective_tier
from escalation.supervisor.successors import AS_USUAL, RunChoice
from sessions_app.models import Cycle, Session
from tests.escalation.refusals import command_refused, refused
from tests.escalation.rows import ESCALATE, HEALTHY
from tests.escalation.runs import change, child_of, run
from tests.factories import SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db
LIMITS = ("--max-turns", "5", "--budget", "0.50")


def manage(*arguments: object) -> str:
    out = io.StringIO()
    with contextlib.suppress(SystemExit):
        call_command(*map(str, arguments), stdout=out, stderr=io.StringIO())
    return out.getvalue()


@pytest.fixture
def shop(workdir):
    return WatchFactory(name="shop", workdir=str(workdir))


@pytest.mark.parametrize(
    ("tier", "model"),
    [(1, "haiku"), (2, "sonnet"), (2, "haiku"), (3, "opus"), (3, "sonnet"), (3, "haiku")],
)
def test_a_model_of_the_tier_or_of_a_lower_one_is_allowed(tier, model):
    assert RunChoice(model=model).fields(tier)["model"] == model


@pytest.mark.parametrize(("tier", "model"), [(1, "sonnet"), (2, "opus"), (3, "gpt"), (1, "Haiku")])
def test_any_other_model_is_refused(tier, model):
    with refused(RefusalCode.INVALID_CHOICE, match=model):
        RunChoice(model=model).fields(tier)


def test_the_refusal_of_a_model_names_the_allowed_ones():
    with refused(RefusalCode.INVALID_CHOICE, match="sonnet or haiku"):
        RunChoice(model="opus").fields(2)


@pytest.mark.parametrize("turns", [0, -1, 61])
def test_more_turns_than_the_tier_has_are_refused(turns):
    with refused(RefusalCode.INVALID_CHOICE, match=f"1 to 60 .*{turns}"):
        RunChoice(max_turns=turns).fields(1)


@pytest.mark.parametrize("budget", ["0", "-1", "2.01"])
def test_a_higher_budget_than_the_tier_has_is_refused(budget):
    with refused(RefusalCode.INVALID_CHOICE, match=r"\$2.00"):
        RunChoice(max_budget_usd=Decimal(budget)).fields(1)


def test_all_errors_are_named_at_once():
    with refused(RefusalCode.INVALID_CHOICE, match=r"model gpt.*turns.*may spend"):
        RunChoice(model="gpt", max_turns=0, max_budget_usd=Decimal(0)).fields(1)


def test_without_a_choice_the_tier_has_its_defaults():
    assert AS_USUAL.fields(2) == {"model": "sonnet", "max_turns": None, "max_budget_usd": None}


def test_the_cli_gets_the_chosen_model_and_limits(fake_cli, shop):
    fake_cli.reports(HEALTHY)

    manage("run_cycle", "--watch", "shop", "--tier", 2, "--no-input", "--model", "haiku", *LIMITS)

    call = fake_cli.calls[0]
    assert (call.flag("--model"), call.flag("--max-turns")) == ("haiku", "5")
    assert Decimal(call.flag("--max-budget-usd")) == Decimal("0.50")


def test_the_choice_is_stored_and_shown(fake_cli, shop, operator_client):
    fake_cli.reports(HEALTHY)

    (entry,) = json.loads(manage("run_cycle", "--watch", "shop", *LIMITS, "--json"))

    assert (entry["max_turns"], entry["max_budget_usd"]) == (5, 0.5)
    page = operator_client.get(reverse("web:session", args=[entry["id"]]))
    assert "at most 5 were allowed for this run" in page.content.decode()
    assert "at most $0.50 were allowed for this run" in page.content.decode()


def test_the_next_tier_has_its_defaults(fake_cli, shop):
    fake_cli.reports(ESCALATE).reports(HEALTHY)

    manage("run_cycle", "--watch", "shop", *LIMITS)

    call = fake_cli.calls[1]
    assert (call.flag("--model"), call.flag("--max-turns")) == ("sonnet", "80")
    assert Decimal(call.flag("--max-budget-usd")) == 5


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("result(None)", id="asked again for the report"),
        pytest.param(
            "result(None, subtype='error_max_turns', is_error=True); sys.exit(1)",
            id="went on after its turn limit",
        ),
    ],
)
def test_a_session_that_continues_the_work_keeps_the_limits(fake_cli, shop, ending):
    fake_cli.then(f"init(); say(); {ending}").reports(HEALTHY)

    manage("run_cycle", "--watch", "shop", *LIMITS)

    call = fake_cli.calls[1]
    assert call.flag("--max-turns") == "5"
    assert Decimal(call.flag("--max-budget-usd")) < Decimal("0.50")


def test_a_session_that_runs_again_by_handoff_keeps_the_limits(fake_cli, session):
    fake_cli.reports(ESCALATE)
    second = child_of(run(session))
    change(second, model="haiku", max_turns=7)
    refusing = "emit(type='result', subtype='error_during_execution', is_error=True, num_turns=0,"
    fake_cli.then(
        f"{refusing} session_id=asked);"
        "sys.stderr.write('No conversation found with session ID: x'); sys.exit(1)"
    )

    run(second)

    again = Session.objects.latest("pk")
    assert again.pk != second.pk
    assert (again.tier, again.model, again.max_turns) == (2, "haiku", 7)


def test_stricter_settings_override_an_earlier_choice(session, settings):
    change(session, max_turns=50, max_budget_usd=Decimal("1.5"))
    tiers = settings.CLAUDEOPS_TIERS
    stricter = replace(tiers[1], max_turns=10, max_budget_usd=Decimal("1"))
    settings.CLAUDEOPS_TIERS = {**tiers, 1: stricter}

    tier = effective_tier(Session.objects.get(pk=session.pk))

    assert (tier.max_turns, tier.max_budget_usd) == (10, Decimal("1"))


@pytest.mark.parametrize(
    ("verb", "text", "tier"),
    [("follow_up", ["Why?"], 2), ("fork", ["So"], 2), ("retry", [], 2), ("escalate", ["Go"], 3)],
)
def test_every_manual_operation_takes_limits(verb, text, tier):
    session = SessionFactory(failed=True, tier=2, workdir="/tmp")
    agreed = [] if verb == "follow_up" else ["--no-input"]

    manage("session", verb, session.pk, *text, *agreed, "--queue", "--model", "haiku", *LIMITS)

    queued = Session.objects.get(status=Session.Status.QUEUED)
    assert (queued.tier, queued.model, queued.max_turns) == (tier, "haiku", 5)
    assert queued.max_budget_usd == Decimal("0.5")


def test_a_retry_has_the_defaults_of_its_tier():
    session = SessionFactory(failed=True, tier=2, model="haiku", max_turns=5, workdir="/tmp")

    manage("session", "retry", session.pk, "--no-input", "--queue")

    queued = Session.objects.get(status=Session.Status.QUEUED)
    assert (queued.model, queued.max_turns) == ("sonnet", None)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--model", "opus"], "opus"),
        (["--max-turns", "500"], "1 to 60"),
        (["--budget", "100"], r"\$2.00"),
    ],
)
def test_the_commands_refuse_more_than_the_tier_has(shop, options, named):
    with command_refused(RefusalCode.INVALID_CHOICE, match=named):
        manage("run_cycle", "--watch", "shop", *options)

    assert not Cycle.objects.exists()


@pytest.mark.parametrize("amount", ["much", "nan"])
def test_the_commands_refuse_a_budget_that_is_not_an_amount(shop, amount):
    with pytest.raises(CommandError, match=f"--budget: '{amount}'"):
        manage("run_cycle", "--watch", "shop", "--budget", amount)

    assert not Cycle.objects.exists()


def test_the_form_on_the_overview_takes_limits(operator_client, fake_cli, shop):
    form = {"max_turns": "5", "budget": "0.5", "ephemeral": "on", "prompt": " Is db slow? "}

    operator_client.post(reverse("web:run_watch", args=[shop.pk]), form)

    cycle = shop.cycles.get()
    run_of_it = cycle.sessions.get()
    assert (run_of_it.max_turns, run_of_it.max_budget_usd) == (5, Decimal("0.5"))
    assert (cycle.ephemeral, cycle.prompt) == (True, "Is db slow?")


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"max_turns": "many"}, "Turns: Enter a whole number"),
        ({"budget": "much"}, "Dollars: Enter a number"),
        ({"max_turns": "61"}, "1 to 60 turns"),
        ({"budget": "0"}, "at most $2.00"),
    ],
)
def test_the_form_reports_an_invalid_choice(operator_client, fake_cli, shop, form, why):
    url = reverse("web:run_watch", args=[shop.pk])

    page = operator_client.post(url, form, follow=True)

    assert why in page.content.decode()
    assert not Cycle.objects.exists()
