"""`claudeops source`: what is printed once, listed, tested and removed."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command

from escalation.alerts import sources
from escalation.alerts.judge import judge_waiting
from escalation.errors import RefusalCode
from sessions_app.models import Delivery, Source
from sessions_app.models.alert import SourceKind
from tests.escalation.refusals import command_refused
from tests.factories import WatchFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def said(capsys):
    def run(*words: str) -> str:
        call_command("source", *words)
        return capsys.readouterr().out

    return run


@pytest.fixture
def shop():
    return WatchFactory(name="shop")


def test_an_empty_list_names_the_command_to_add_one(said):
    assert "source add NAME" in said("list")


@pytest.mark.parametrize("kind", SourceKind.values)
def test_a_new_source_prints_address_secret_and_snippet(said, shop, kind):
    text = said("add", "mine", "--kind", kind, "--watch", "shop", "--json")

    made, source = json.loads(text), Source.objects.get()
    assert sources.by_token(made["token"]) == source
    assert made["secret"] in made["snippet"]
    assert made["address"].split("://")[1].split("/")[0] in made["snippet"]
    assert bool(made["secret"]) == (kind != SourceKind.PAGERDUTY)
    assert (source.watch, source.kind) == (shop, kind)


def test_secrets_are_printed_as_they_are_without_json(said, shop):
    text = said("add", "mine", "--kind", "alertmanager", "--watch", "shop")

    assert "redacted" not in text
    assert sources.by_token(text.split("/in/")[1].split()[0]) == Source.objects.get()


def test_routes_and_paths_are_stored(said, shop):
    words = ("--route", "team=web:shop", "--path", "service=host.name", "--new-only", "--no-secret")

    made = json.loads(said("add", "mine", "--kind", "generic", *words, "--json"))

    source = Source.objects.get()
    assert (source.routes, source.paths) == ("team=web shop", {"service": "host.name"})
    assert (source.runs_again, made["secret"]) == (False, "")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("add", "a", "--kind", "grafana"), RefusalCode.INVALID_ARGUMENTS),
        (("add", "a", "--kind", "grafana", "--watch", "none"), RefusalCode.NOT_FOUND),
        (("add", "a", "--kind", "grafana", "--route", "x:shop"), RefusalCode.INVALID_ARGUMENTS),
        (("add", "a", "--kind", "grafana", "--route", "x=1:no"), RefusalCode.INVALID_ARGUMENTS),
        (
            ("add", "a", "--kind", "generic", "--watch", "shop", "--path", "x=y"),
            RefusalCode.INVALID_ARGUMENTS,
        ),
        (("add", "taken", "--kind", "grafana", "--watch", "shop"), RefusalCode.INVALID_ARGUMENTS),
        (("test", "none"), RefusalCode.NOT_FOUND),
        (("remove", "none"), RefusalCode.NOT_FOUND),
        (("deliveries", "none"), RefusalCode.NOT_FOUND),
    ],
)
def test_wrong_arguments_are_refused(shop, words, code):
    sources.add(Source(name="taken", kind="grafana", watch=shop))

    with command_refused(code):
        call_command("source", *words)
    assert Source.objects.count() == 1


def test_a_test_is_listed_with_its_verdict(said, shop):
    said("add", "mine", "--kind", "alertmanager", "--watch", "shop")
    said("test", "mine")
    judge_waiting()

    [row] = json.loads(said("deliveries", "mine", "--json"))

    assert (row["verdict"], row["source"]) == ("test", "mine")
    assert "test" in said("deliveries")


def test_renewed_source_has_another_address(said, shop):
    first = json.loads(said("add", "mine", "--kind", "grafana", "--watch", "shop", "--json"))
    second = json.loads(said("renew", "mine", "--no-input", "--json"))

    assert sources.by_token(first["token"]) is None
    assert sources.by_token(second["token"]) == Source.objects.get()
    assert second["secret"] != first["secret"]


def test_switched_and_removed(said, shop):
    said("add", "mine", "--kind", "grafana", "--watch", "shop")
    said("disable", "mine")
    assert not Source.objects.get().enabled
    said("enable", "mine")
    assert Source.objects.get().enabled
    said("test", "mine")

    said("remove", "mine", "--no-input")

    assert not Source.objects.exists()
    assert not Delivery.objects.exists()


def test_paths_are_chosen_from_a_sample(said, shop, tmp_path):
    said("add", "any", "--kind", "generic", "--watch", "shop")
    sample = tmp_path / "sample.json"
    sample.write_text('{"check": {"name": "web", "what": "down", "id": 4}}')
    with command_refused(RefusalCode.NOT_FOUND):
        said("paths", "any")
    for code, wrong in (
        (RefusalCode.INVALID_CHOICE, ("--path", "no=a")),
        (RefusalCode.FILE, ("--sample", "/nowhere")),
    ):
        with command_refused(code):
            said("paths", "any", "--sample", str(sample), *wrong)

    seen = json.loads(said("paths", "any", "--sample", str(sample), "--json"))
    assert seen["paths"]["fingerprint"] == "check.id"
    assert Source.objects.get().paths == {}
    words = ("--path", "service=check.name", "--path", "summary=check.what", "--save")
    text = said("paths", "any", "--sample", str(sample), *words)

    assert "web: down (firing)" in text
    assert Source.objects.get().paths["summary"] == "check.what"
