"""`claudeops apply`: plan, application in one transaction, prune, and what is recorded."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone

from escalation.alerts import sources
from escalation.configuration import state
from escalation.configuration.apply import Actor, apply, planned
from escalation.configuration.files import read
from escalation.configuration.plan import Kind
from escalation.errors import RefusalCode
from escalation.management.commands import worker
from escalation.probes import manage
from sessions_app.access.roles import Role
from sessions_app.models import (
    AppliedDeclaration,
    Channel,
    Cycle,
    Maintenance,
    Probe,
    Remedy,
    Source,
    Watch,
)
from sessions_app.models.autonomy import AutonomyLevel
from sessions_app.redaction.encryption import address_of, secret_of
from tests.escalation.configuration.test_files import example
from tests.escalation.refusals import command_refused
from tests.factories import CycleFactory, ProbeFactory, WatchFactory, user_with

pytestmark = pytest.mark.django_db

TOKEN, SECRET = "t0ken-of-the-source-am-1234", "s3cret-of-am"
BY = Actor(name="anna")


@pytest.fixture(autouse=True)
def anna():
    return User.objects.create_superuser("anna")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "etc").mkdir()
    return tmp_path


@pytest.fixture
def write(place):
    """Write files of the configuration and return their directory."""

    def files(**texts):
        for name, text in texts.items():
            text = text.replace("DIR", str(place / "shop"))
            (place / "etc" / f"{name}.toml").write_text(text)
        return place / "etc"

    return files


@pytest.fixture
def run(capsys):
    """Run `claudeops apply` and return the exit code and the data that it prints."""

    def command(path, *words):
        code: object = 0
        try:
            call_command("apply", str(path), "--json", "--as", "anna", *words)
        except SystemExit as ended:
            code = ended.code
        return code, json.loads(capsys.readouterr().out)

    return command


SHOP = '[watches.shop]\ndirectory = "DIR"\nevery = "30m"\nautonomy = "safe"\n'
WEB = '[watches.shop.probes.web]\nservice = "web"\ntcp = "127.0.0.1:9"\nneeds = ["router"]\n'
ROUTER = '[watches.shop.probes.router]\nservice = "router"\ntcp = "127.0.0.1:8"\n'


def steps_since(watch):
    found = state.drift_of(Watch.objects.get(pk=watch.pk))
    assert found is not None
    return found.steps


def names(data):
    return [(step["action"], step["kind"], step["name"]) for step in data["steps"]]


def test_plan_changes_nothing_and_exits_with_1(write, run):
    code, data = run(write(shop=SHOP + WEB + ROUTER), "--plan")

    assert code == 1
    assert names(data) == [
        ("add", "watch", "shop"),
        ("add", "probe", "router"),
        ("add", "probe", "web"),
    ]
    assert [step["line"] for step in data["steps"]] == [1, 9, 5]
    assert not data["applied"]
    assert not Watch.objects.exists()
    assert not AppliedDeclaration.objects.exists()


def test_apply_adds_and_a_second_time_changes_nothing(write, run, django_assert_num_queries):
    path = write(shop=SHOP + WEB + ROUTER)

    code, data = run(path, "--yes")
    record = AppliedDeclaration.objects.get()
    changed = Probe.objects.get(name="web").changed_at
    again, second = run(path, "--yes")

    assert (code, data["applied"], again, second["steps"]) == (0, True, 0, [])
    watch = Watch.objects.get()
    assert (watch.interval_minutes, watch.autonomy_level) == (30, AutonomyLevel.SAFE)
    assert not watch.enabled
    assert watch.schedule is not None
    assert watch.manifest.accepted_by == "anna"
    assert [one.name for one in Probe.objects.get(name="web").needs.all()] == ["router"]
    assert Probe.objects.get(name="web").changed_at == changed
    after = AppliedDeclaration.objects.get()
    assert (after.applied_at, after.applied_by) == (record.applied_at, "anna")
    assert run(path, "--plan")[0] == 0


def test_change_is_shown_field_by_field_and_logged(write, run, anna):
    run(write(shop=SHOP), "--yes")
    path = write(shop=SHOP.replace("30m", "1h") + "hosts = ['nas', 'lab']\n")

    data = run(path, "--yes")[1]

    [step] = data["steps"]
    assert step["fields"] == [
        {"name": "every", "before": "30m", "after": "1h"},
        {"name": "hosts", "before": None, "after": ["lab", "nas"]},
    ]
    entries = LogEntry.objects.filter(user=anna).order_by("pk")
    assert [entry.is_addition() for entry in entries] == [True, False]


def test_everything_of_the_example_is_applied(write, run, place, monkeypatch):
    text = example().replace("/srv/shop", str(place / "shop"))
    (place / "phone").write_text("json://127.0.0.1:9/phone\n")
    script = place / "clean"
    script.write_text("#!/bin/sh\n")
    text = text.replace("/run/secrets/phone", str(place / "phone"))
    monkeypatch.setenv("ALERTMANAGER_TOKEN", TOKEN)
    monkeypatch.setenv("ALERTMANAGER_SECRET", SECRET)
    path = write(shop=text)

    code, data = run(path, "--yes")

    assert (code, data["mistakes"]) == (0, [])
    watch, source, channel = Watch.objects.get(), Source.objects.get(), Channel.objects.get()
    assert {step["kind"] for step in data["steps"]} == set(Kind)
    assert sources.by_token(TOKEN) == source
    assert secret_of(source) == SECRET
    assert address_of(channel) == "json://127.0.0.1:9/phone"
    assert SECRET not in json.dumps(data)
    assert watch.budget_day_usd is not None
    assert Maintenance.objects.get().is_weekly
    assert Remedy.objects.count() >= 1
    assert run(path, "--plan") == (0, {**data, "steps": [], "applied": False})


def test_mistake_in_one_file_applies_nothing_of_the_others(write, run):
    path = write(
        a=SHOP,
        b='[watches.b]\ndirectory = "/nonexistent"\ncron = "61 * * * *"\n'
        '[watches.b.probes.p]\nservice = "x"\nhttp = "ftp://nas"\n',
        c='[channels.c]\naddress = "env:NOT_SET_ANYWHERE"\n',
    )

    with command_refused(RefusalCode.CONFIGURATION) as refused:
        call_command("apply", str(path), "--yes")

    for line in ("b.toml:2:", "b.toml:3:", "b.toml:4:", "c.toml:2:"):
        assert line in str(refused.value)
    assert not Watch.objects.exists()


def test_remedy_whose_script_an_agent_could_write_is_refused(write, place, run):
    (place / "shop" / "fix").write_text("#!/bin/sh\n")
    remedy = f'[watches.shop.remedies.fix]\ndescription = "d"\ncommand = ["{place}/shop/fix"]\n'

    found = planned(read(write(shop=SHOP + remedy)), prune=False)

    assert [one.line for one in found.mistakes] == [7]


def test_switch_that_a_file_leaves_open_stays_as_people_set_it(write, run):
    path = write(shop=SHOP)
    run(path, "--yes")
    Watch.objects.update(enabled=True)

    assert run(path, "--plan")[0] == 0
    assert run(write(shop=SHOP + "enabled = false\n"), "--yes")[1]["steps"][0]["fields"] == [
        {"name": "enabled", "before": True, "after": False}
    ]


def test_prune_removes_only_what_files_of_this_place_declared(write, run, place):
    path = write(shop=SHOP + ROUTER, nas=SHOP.replace("shop", "nas", 1))
    run(path, "--yes")
    other = WatchFactory(name="other")
    ProbeFactory(watch=Watch.objects.get(name="shop"), name="by-page")
    (path / "nas.toml").unlink()

    code, data = run(path, "--plan")
    assert (code, data["steps"], data["left"]) == (0, [], ["probe shop/by-page", "watch nas"])
    data = run(path, "--prune", "--yes")[1]

    assert names(data) == [("remove", "watch", "nas"), ("remove", "probe", "by-page")]
    assert set(Watch.objects.values_list("name", flat=True)) == {"shop", other.name}
    assert list(Probe.objects.values_list("name", flat=True)) == ["router"]
    assert AppliedDeclaration.objects.get().name == "shop"


def test_watch_with_an_active_cycle_is_not_pruned(write, run):
    path = write(shop=SHOP, nas=SHOP.replace("shop", "nas", 1))
    run(path, "--yes")
    CycleFactory(watch=Watch.objects.get(name="nas"), state=Cycle.State.RUNNING)
    (path / "nas.toml").unlink()

    with command_refused(RefusalCode.CONFIGURATION):
        call_command("apply", str(path), "--prune", "--yes", "--as", "anna")

    assert Watch.objects.count() == 2


def test_plan_that_went_stale_is_refused_with_the_new_plan(write):
    found = read(write(shop=SHOP))
    shown = planned(found, prune=False)
    WatchFactory(name="shop", workdir=found.watches[0].content.directory)

    done = apply(found, by=BY, expected=shown.digest)

    assert (done.is_stale, done.is_applied) == (True, False)
    assert [step.action for step in done.steps] == ["change"]
    assert Watch.objects.get().interval_minutes == 60
    assert apply(found, by=BY, expected=done.digest).is_applied


def test_account_without_the_right_applies_nothing(write):
    user_with(Role.OPERATOR, username="ben")

    with command_refused(RefusalCode.NOT_PERMITTED):
        call_command("apply", str(write(shop=SHOP)), "--yes", "--as", "ben")

    assert not Watch.objects.exists()


def test_without_yes_an_answer_is_asked_for(write, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_question: "n")

    with command_refused(RefusalCode.NOT_CONFIRMED):
        call_command("apply", str(write(shop=SHOP)), "--as", "anna")

    assert not Watch.objects.exists()


def test_source_without_references_shows_its_address_once(write, capsys):
    path = write(shop=SHOP + '[sources.am]\nkind = "grafana"\nwatch = "shop"\n')

    call_command("apply", str(path), "--yes", "--as", "anna")
    shown = capsys.readouterr().err
    call_command("apply", str(path), "--yes", "--as", "anna")

    assert sources.by_token(shown.split("/in/")[1].split()[0]) == Source.objects.get()
    assert "/in/" not in capsys.readouterr().err


def test_secret_of_a_source_changes_with_its_reference(write, run, monkeypatch):
    text = SHOP + (
        '[sources.am]\nkind = "grafana"\nwatch = "shop"\ntoken = "env:AM"\nsecret = "env:AM_S"\n'
    )
    environment = {"AM": TOKEN, "AM_S": SECRET}
    apply(read(write(shop=text), environment), by=BY)

    done = apply(read(write(shop=text), {**environment, "AM_S": "another"}), by=BY)

    assert [change.name for step in done.steps for change in step.fields] == ["secret"]
    assert secret_of(Source.objects.get()) == "another"
    short = planned(read(write(shop=text), {**environment, "AM": "short"}), prune=False)
    assert [one.line for one in short.mistakes] == [5]


def test_probes_that_need_each_other_are_a_mistake(write):
    text = SHOP + WEB + ROUTER + 'needs = ["web"]\n'

    assert len(planned(read(write(shop=text)), prune=False).mistakes) == 1


def test_window_of_a_person_is_neither_drift_nor_pruned(write, run):
    path = write(shop=SHOP)
    run(path, "--yes")
    watch = Watch.objects.get()
    manage.start_maintenance(watch, seconds=3600)

    assert run(path, "--plan", "--prune")[0] == 0
    assert steps_since(watch) == ()


def test_window_that_is_over_is_not_made_again(write, run):
    past = (timezone.now() - timedelta(days=3)).isoformat()
    text = f'[[watches.shop.maintenance]]\nstarts_at = {past}\nfor = "1h"\n'

    data = run(write(shop=SHOP + text), "--yes")[1]

    assert names(data) == [("add", "watch", "shop")]
    assert not Maintenance.objects.exists()


def test_drift_tells_what_was_changed_since(write, run):
    run(write(shop=SHOP + ROUTER), "--yes")
    watch = Watch.objects.get()
    assert steps_since(watch) == ()

    Watch.objects.update(interval_minutes=5, enabled=True)
    ProbeFactory(watch=watch, name="by-page")
    steps = steps_since(watch)

    assert AppliedDeclaration.objects.get().applied_by == "anna"
    assert [(step.action, step.address.name) for step in steps] == [
        ("change", "shop"),
        ("add", "by-page"),
    ]
    assert state.drift_of(WatchFactory()) is None


def test_page_and_command_tell_the_drift_and_the_way_back(write, run, client, anna, capsys):
    path = write(shop=SHOP + ROUTER)
    run(path, "--yes")
    watch = Watch.objects.get()
    client.force_login(anna)
    in_step = client.get(watch.get_absolute_url()).content.decode()

    Probe.objects.update(target="127.0.0.1:7")
    changed = client.get(watch.get_absolute_url()).content.decode()
    call_command("watch", "show", "shop", "--json")
    data = json.loads(capsys.readouterr().out)["configuration"]

    file = str(path / "shop.toml")
    assert f"In step with <code>{file}</code>" in in_step
    assert f"claudeops apply {file}</code>" in changed
    assert "claudeops apply" not in in_step
    assert (data["file"], data["applied_by"], data["in_step"]) == (file, "anna", False)
    assert data["drift"] == ['probe shop/router, tcp: "127.0.0.1:8" → "127.0.0.1:7"']
    run(path, "--yes")
    assert steps_since(watch) == ()


def test_start_applies_the_files_of_the_setting(write, anna, settings, capsys, monkeypatch):
    settings.CLAUDEOPS_APPLY = str(write(shop=SHOP + ROUTER))
    started = []
    monkeypatch.setattr(worker, "run_worker", lambda: started.append(1))

    call_command("upgrade")
    first = capsys.readouterr().out
    call_command("worker")
    second = capsys.readouterr().out

    assert "+ probe shop/router" in first
    assert "+" not in second
    assert started == [1]
    assert AppliedDeclaration.objects.get().applied_by == "CLAUDEOPS_APPLY"
    assert LogEntry.objects.filter(user=anna).count() == 2


def test_start_ends_with_all_mistakes(write, settings, monkeypatch):
    settings.CLAUDEOPS_APPLY = str(write(a="a = 1\nb = 2\n", b="c = 1"))
    monkeypatch.setattr(worker, "run_worker", lambda: pytest.fail("the worker started"))

    with command_refused(RefusalCode.CONFIGURATION) as refused:
        call_command("worker")

    assert str(refused.value).count(".toml:") == 3
