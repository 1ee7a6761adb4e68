"""`claudeops watch`: add, list, show, edit, pause and remove watches."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django_q.models import Schedule

from escalation.errors import RefusalCode
from escalation.run.manifest import accept_first
from escalation.web import watches
from sessions_app.models import Cycle, Manifest, Watch
from tests.escalation.refusals import command_refused
from tests.factories import CycleFactory, SessionFactory, WatchFactory, user_with

pytestmark = pytest.mark.django_db


def output_of(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


@pytest.fixture
def shop(workdir) -> Watch:
    return WatchFactory(name="shop", workdir=str(workdir), interval_minutes=60)


def test_watch_lists_the_default_watch_from_the_first_call(settings):
    settings.CLAUDEOPS_WORKDIR = "/srv/shop"

    assert "/srv/shop" in output_of("watch", "list")


def test_without_any_watch_the_list_says_how_to_add_one():
    assert "watch add NAME DIRECTORY" in output_of("watch", "list")


def test_watch_refuses_a_directory_of_ours_and_one_outside_the_roots(settings, workdir, shop):
    settings.CLAUDEOPS_ROOTS = (workdir,)

    with command_refused(RefusalCode.INVALID_ARGUMENTS, match="state directory"):
        output_of("watch", "add", "lab", str(workdir.parent))
    with command_refused(RefusalCode.INVALID_ARGUMENTS, match="CLAUDEOPS_ROOTS"):
        output_of("watch", "edit", "shop", "--workdir", "/var")


def test_grants_are_set_and_shown_tier_by_tier(shop, monkeypatch):
    monkeypatch.setattr(
        watches, "open_at", lambda tier, words: ("docker", *words.split(), "host")[: tier + 1]
    )

    shown = output_of("watch", "edit", "shop", "--grants", "write:/srv/app")

    shop.refresh_from_db()
    assert shop.grants == "write:/srv/app"
    assert "grants        write:/srv/app\n" in shown
    assert "Tier 1      docker write:/srv/app\n" in shown
    assert "Tier 2      +host\n" in shown
    assert "Tier 3      the same\n" in shown
    output_of("watch", "edit", "shop", "--grants", "")
    assert json.loads(output_of("watch", "show", "shop", "--json"))["grants"] == ""


def test_watch_lists_schedule_and_limits():
    WatchFactory(name="shop", interval_minutes=15, max_tier=2, dry_run=True)

    line = output_of("watch", "list")

    assert all(text in line for text in ("shop", "every 15 minutes", "up to Tier 2, dry run"))


def test_a_new_watch_is_paused_and_dry_with_tier_1_and_names_the_next_command(workdir):
    said = output_of("watch", "add", "shop", str(workdir))

    watch = Watch.objects.get(name="shop")
    assert (watch.enabled, watch.dry_run, watch.max_tier) == (False, True, 1)
    assert watch.approval == "3"
    assert Schedule.objects.get(watch=watch).repeats == 0
    assert said.splitlines() == [
        f"The watch shop looks after {workdir}.",
        "  autonomy      look",
        "  manifest      there is no CLAUDE-OPS.md in the directory",
        "  it runs       only when you ask: claudeops run_cycle --watch shop",
        "  switch it on  claudeops watch unpause shop (every hour)",
        "  change        claudeops watch autonomy shop",
    ]


def test_a_watch_is_added_with_its_whole_policy(workdir):
    said = output_of(
        *("watch", "add", "shop", str(workdir), "--enable", "--approval", "2,3"),
        *("--budget-day", "2.50", "--restarts", "3/6h", "--redeployments", "0/2d"),
    )

    watch = Watch.objects.get(name="shop")
    assert (watch.enabled, watch.approval, watch.budget_day_usd) == (True, "2,3", Decimal("2.50"))
    assert (watch.restarts_allowed, watch.restart_hours) == (3, 6)
    assert (watch.redeployments_allowed, watch.redeployment_hours) == (0, 48)
    assert "it runs       every hour, by itself" in said


def test_none_removes_approval_and_budget(shop):
    output_of("watch", "edit", "shop", "--approval", "3", "--budget-day", "0")
    shop.refresh_from_db()
    before = (shop.approval, shop.budget_day_usd)

    output_of("watch", "edit", "shop", "--approval", "none", "--budget-day", "none")

    shop.refresh_from_db()
    assert before == ("3", Decimal(0))
    assert (shop.approval, shop.budget_day_usd) == ("", None)


def test_autonomy_is_shown_with_the_effect_of_each_level_and_set(shop):
    shown = output_of("watch", "autonomy", "shop")
    said = output_of("watch", "autonomy", "shop", "safe-with-approval")

    shop.refresh_from_db()
    assert shown.startswith("shop may do this by itself: everything\n")
    assert "* all " in shown
    assert shown.count("would have changed nothing") == 4
    assert said.startswith("shop may do this by itself: safe remedies with approval\n")
    assert (shop.max_tier, shop.dry_run, shop.approval) == (2, False, "2,3")


def test_an_unknown_level_is_refused(shop):
    with pytest.raises(CommandError, match="'more'"):
        output_of("watch", "autonomy", "shop", "more")


def test_watch_is_added_with_the_given_options(workdir):
    output_of(
        *("watch", "add", "shop", str(workdir), "--every", "15", "--max-tier", "2"),
        *("--dry-run", "--instructions", "Mind db."),
    )

    watch = Watch.objects.get(name="shop")
    assert (watch.workdir, watch.interval_minutes) == (str(workdir), 15)
    assert (watch.max_tier, watch.dry_run, watch.instructions) == (2, True, "Mind db.")


def test_watch_is_added_with_the_defaults_of_the_installation(settings, workdir):
    settings.CLAUDEOPS_INTERVAL = 7200
    settings.CLAUDEOPS_MAX_TIER = 1

    said = output_of("watch", "add", "shop", str(workdir))

    assert "(every 2 hours)" in said
    assert Watch.objects.get(name="shop").max_tier == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cron", "sometimes"], "--cron: 'sometimes'"),
        (["--every", "0"], "--every: "),
        (["--every", "often"], "--every: .*'often'"),
        (["--max-tier", "7"], "--max-tier: .*7"),
        (["--approval", "4"], "--approval: '4'"),
        (["--approval", "two"], "--approval: 'two'"),
        (["--budget-day", "-1"], "--budget-day: "),
        (["--budget-day=-0.01"], "--budget-day: '-0.01'"),
        (["--budget-day", "abc"], "--budget-day: 'abc'"),
        (["--budget-day", "NaN"], "--budget-day: 'NaN'"),
        (["--budget-day", "Infinity"], "--budget-day: 'Infinity'"),
        (["--restarts", "2"], "--restarts: '2'"),
        (["--restarts", "2/0h"], "--restarts: '2/0h'"),
        (["--restarts", "-1/4h"], "--restarts: "),
        (["--redeployments", "two/4h"], "--redeployments: 'two/4h'"),
        (["--redeployments", "1/99999h"], "--redeployments: '1/99999h'"),
    ],
)
def test_watch_refuses_an_invalid_value(workdir, options, message):
    with pytest.raises(CommandError, match=message):
        output_of("watch", "add", "shop", str(workdir), *options)

    assert not Watch.objects.filter(name="shop").exists()


def test_watch_refuses_a_missing_directory(workdir):
    with command_refused(RefusalCode.INVALID_ARGUMENTS, match="workdir.*gone"):
        output_of("watch", "add", "shop", str(workdir / "gone"))


def test_watch_refuses_a_name_that_is_taken(workdir):
    WatchFactory(name="shop")

    with command_refused(RefusalCode.INVALID_ARGUMENTS, match="name"):
        output_of("watch", "add", "shop", str(workdir))


def test_watch_pauses_and_unpauses():
    watch = WatchFactory(name="shop", interval_minutes=60)

    paused = output_of("watch", "pause", "shop")
    watch.refresh_from_db()
    was_enabled = watch.enabled
    resumed = output_of("watch", "unpause", "shop")

    assert (paused, was_enabled) == ("The watch shop is paused.\n", False)
    assert resumed == "The watch shop is on: every hour.\n"


@pytest.mark.parametrize("verb", ["pause", "unpause"])
def test_watch_refuses_an_unknown_name(verb):
    with command_refused(RefusalCode.NOT_FOUND, match="lab"):
        output_of("watch", verb, "lab")


def test_watch_needs_a_verb():
    with pytest.raises(CommandError, match="verb"):
        output_of("watch")


def test_every_and_cron_exclude_each_other(workdir):
    with command_refused(RefusalCode.INVALID_ARGUMENTS, match="--every, --cron:"):
        output_of("watch", "add", "shop", str(workdir), "--every", "5", "--cron", "0 3 * * *")


def test_all_errors_are_reported_at_once_with_their_options(workdir):
    with command_refused(RefusalCode.INVALID_ARGUMENTS) as refusal:
        output_of(
            *("watch", "add", "shop", str(workdir / "gone"), "--every", "0"),
            *("--cron", "sometimes", "--grants", "window"),
        )

    lines = str(refusal.value).splitlines()
    named = [line.partition(":")[0] for line in lines]
    assert named == ["--every, --cron", "--every", "--grants", "workdir"]


def test_the_list_is_printed_as_json(shop):
    (listed,) = json.loads(output_of("watch", "list", "--json"))

    assert (listed["name"], listed["workdir"]) == ("shop", shop.workdir)


def test_a_watch_can_be_added_without_a_dry_run_where_that_is_the_default(settings, workdir):
    settings.CLAUDEOPS_DRY_RUN = True

    output_of("watch", "add", "shop", str(workdir), "--no-dry-run")

    assert not Watch.objects.get(name="shop").dry_run


def test_show_prints_all_settings(shop):
    Watch.objects.filter(pk=shop.pk).update(instructions="Mind db.\nAnd web.", dry_run=True)
    cycle = CycleFactory(
        watch=shop, outcome=Cycle.Outcome.NEEDS_PERSON, outcome_reason="db is slow"
    )

    shown = output_of("watch", "show", "shop")

    assert shown.startswith(f"shop: every hour, in {shop.workdir}\n")
    for text in (
        "Tier 3, dry run",
        "next run",
        "Mind db.",
        "And web.",
        "needs a person. db is slow",
    ):
        assert text in shown
    assert f"  {cycle.pk} " in shown


def test_show_reports_that_a_watch_has_never_run(shop):
    assert output_of("watch", "show", "shop").endswith("It has never run.\n")


def test_show_prints_json(shop):
    cycles = CycleFactory.create_batch(6, watch=shop)

    shown = json.loads(output_of("watch", "show", "shop", "--json"))

    assert (shown["name"], shown["interval_minutes"], shown["cron"]) == ("shop", 60, None)
    assert shown["next_run"] is not None
    assert [entry["id"] for entry in shown["last_cycles"]] == [
        cycle.pk for cycle in reversed(cycles[1:])
    ]


def test_edit_changes_only_the_given_fields(shop):
    output_of("watch", "edit", "shop", "--max-tier", "2", "--dry-run", "--every", "15")

    shop.refresh_from_db()
    assert (shop.max_tier, shop.dry_run, shop.interval_minutes) == (2, True, 15)
    assert (shop.name, shop.enabled) == ("shop", True)
    assert Schedule.objects.get(watch=shop).minutes == 15


def test_edit_switches_the_dry_run_off(shop):
    Watch.objects.update(dry_run=True)

    output_of("watch", "edit", "shop", "--no-dry-run")

    shop.refresh_from_db()
    assert not shop.dry_run


def test_edit_renames_moves_and_disables(shop, workdir):
    (workdir / "new").mkdir()

    output_of(
        *("watch", "edit", "shop", "--name", "store", "--workdir", str(workdir / "new")),
        "--disable",
    )

    shop.refresh_from_db()
    assert (shop.name, shop.workdir, shop.enabled) == ("store", str(workdir / "new"), False)
    assert Schedule.objects.get(watch=shop).repeats == 0


@pytest.mark.parametrize(
    ("options", "cron"), [(["--cron", "0 3 * * *"], "0 3 * * *"), (["--every", "5"], "")]
)
def test_edit_changes_between_an_interval_and_cron(shop, options, cron):
    Watch.objects.update(cron="" if cron else "0 5 * * *")

    output_of("watch", "edit", "shop", *options)

    shop.refresh_from_db()
    assert shop.cron == cron


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--every"),
        (["--cron", "sometimes"], "--cron: .*sometimes"),
        (["--workdir", "/nowhere/at/all"], "workdir: .*/nowhere/at/all"),
        (["--name", "lab"], "name: "),
        (["--every", "0"], "--every: "),
    ],
)
def test_an_invalid_edit_is_refused_and_changes_nothing(shop, options, message):
    WatchFactory(name="lab")
    before = Watch.objects.filter(pk=shop.pk).values().get()

    with command_refused(RefusalCode.INVALID_ARGUMENTS, match=message):
        output_of("watch", "edit", "shop", *options)

    assert Watch.objects.filter(pk=shop.pk).values().get() == before


def test_remove_needs_a_confirmation(shop, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))

    with command_refused(RefusalCode.NOT_CONFIRMED):
        output_of("watch", "remove", "shop")

    assert Watch.objects.filter(name="shop").exists()


def test_remove_keeps_the_cycles(shop):
    session = SessionFactory(cycle=CycleFactory(watch=shop, watch_name="shop"))

    said = output_of("watch", "remove", "shop", "--no-input")

    assert said == "The watch shop was removed. Its 1 cycles stay on record.\n"
    session.refresh_from_db()
    assert session.cycle.subject == "shop (removed)"
    assert not Schedule.objects.filter(func__contains="start_scheduled_cycle").exists()


def test_remove_is_refused_during_an_active_cycle(shop):
    CycleFactory(running=True, watch=shop)

    with command_refused(RefusalCode.CYCLE_ACTIVE):
        output_of("watch", "remove", "shop", "--no-input")

    assert Watch.objects.filter(name="shop").exists()


@pytest.mark.parametrize("verb", ["show", "edit", "remove"])
def test_an_unknown_name_is_refused_with_the_known_ones(shop, verb):
    with command_refused(RefusalCode.NOT_FOUND, match="lab.*shop"):
        output_of("watch", verb, "lab")


@pytest.fixture
def changed(shop, workdir) -> Path:
    """A manifest of the watch that has changed since it was accepted."""
    file: Path = workdir / "CLAUDE-OPS.md"
    file.write_text("Never touch db.")
    accept_first(shop, by="ada")
    file.write_text("Touch db.")
    return file


def manifest_shown() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output_of("watch", "show", "shop", "--json"))["manifest"]
    return found


def test_the_manifest_of_a_new_watch_is_accepted_by_the_user_of_the_terminal(workdir, monkeypatch):
    monkeypatch.setenv("LOGNAME", "grace")
    (workdir / "CLAUDE-OPS.md").write_text("Never touch db.")

    said = output_of("watch", "add", "shop", str(workdir))

    assert Manifest.objects.get().accepted_by == "grace"
    assert "manifest      CLAUDE-OPS.md, accepted by grace on " in said


def test_show_says_that_the_manifest_changed_and_how_to_accept_it(changed):
    shown = manifest_shown()

    assert (shown["state"], shown["waits"], shown["accepted_by"]) == ("changed", True, "ada")
    assert "claudeops watch accept shop" in output_of("watch", "show", "shop")


def test_show_of_a_directory_on_another_host_knows_no_state(changed):
    Watch.objects.update(workdir="/nowhere/at/all", manifest_waits=True)

    shown = manifest_shown()

    assert (shown["state"], shown["waits"]) == (None, True)


def test_accept_shows_the_difference_and_records_who_accepted_it(changed):
    account = user_with("approver")

    said = output_of("watch", "accept", "shop", "--no-input", "--as", account.username)

    logged = LogEntry.objects.get()
    assert "-Never touch db.\n+Touch db.\n" in said
    assert (Manifest.objects.get().text, manifest_shown()["state"]) == ("Touch db.", "accepted")
    assert Manifest.objects.get().accepted_by == account.username
    assert (logged.user, logged.change_message) == (account, "Accepted CLAUDE-OPS.md.")


def test_accept_asks_first(changed, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda: "n")
    account = user_with("approver")

    with pytest.raises(CommandError):
        output_of("watch", "accept", "shop", "--as", account.username)

    assert Manifest.objects.get().text == "Never touch db."


@pytest.mark.parametrize("role", ["operator", "viewer", ""])
def test_accept_takes_the_right_to_change_watches(changed, role):
    account = user_with(role)

    with pytest.raises(CommandError):
        output_of("watch", "accept", "shop", "--no-input", "--as", account.username)

    assert Manifest.objects.get().text == "Never touch db."


def test_accept_without_an_account_or_a_change_is_refused(changed):
    account = user_with("approver")

    with pytest.raises(CommandError, match="--as NAME"):
        output_of("watch", "accept", "shop", "--no-input", "--as", "stranger")
    changed.write_text("Never touch db.")
    with pytest.raises(CommandError, match="nothing to accept"):
        output_of("watch", "accept", "shop", "--no-input", "--as", account.username)


def test_an_edit_accepts_no_changed_manifest(changed, workdir):
    output_of("watch", "edit", "shop", "--every", "30", "--workdir", str(workdir))

    assert Manifest.objects.get().text == "Never touch db."
