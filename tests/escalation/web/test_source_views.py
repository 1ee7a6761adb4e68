"""Pages of sources: add, test, edit, renew, switch off, remove; secrets are shown once."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from escalation.alerts import sources
from escalation.alerts.deliveries import refusals
from escalation.alerts.judge import judge_waiting
from sessions_app.models import Delivery, Source
from tests.factories import SourceFactory, WatchFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]


def post(client, action, *numbers, **form):
    return client.post(reverse(f"web:{action}", args=numbers), form, follow=True)


def test_an_empty_list_explains_itself(operator_client):
    assert "There is no source yet" in operator_client.get("/sources/").content.decode()


def test_a_new_source_shows_its_address_once(operator_client):
    watch = WatchFactory(name="shop")

    page = post(operator_client, "add_source", name="am", kind="alertmanager", watch=watch.pk)

    text = page.content.decode()
    token = re.findall(r"/in/([\w-]{32})", text)[0]
    assert sources.by_token(token) == Source.objects.get()
    assert page["Cache-Control"] == "no-store"
    assert "redacted" not in text
    assert token not in operator_client.get(f"/sources/{Source.objects.get().pk}/").content.decode()


@pytest.mark.parametrize(
    "form",
    [
        {"kind": "alertmanager"},
        {"kind": "alertmanager", "routes": "team shop"},
        {"kind": "alertmanager", "routes": "team=web nowhere"},
        {"kind": "generic", "routes": "team=web shop", "paths": '{"no": "a"}'},
        {"kind": "generic", "routes": "team=web shop", "paths": "{"},
        {"kind": "carrier pigeon", "routes": "team=web shop"},
        {"kind": "alertmanager", "routes": "team=web shop", "name": "taken"},
    ],
)
def test_a_wrong_form_is_shown_again(operator_client, form):
    SourceFactory(name="taken", watch=WatchFactory(name="shop"))

    page = operator_client.post("/sources/add/", {"name": "am", **form})

    assert (page.status_code, Source.objects.count()) == (422, 1)


def test_an_edit_keeps_address_and_kind(operator_client):
    source = SourceFactory(name="am")
    WatchFactory(name="db")
    form = {"name": "new", "kind": "grafana", "routes": "team=db db", "watch": ""}

    post(operator_client, "edit_source", source.pk, **form)

    after = Source.objects.get()
    assert (after.name, after.kind, after.routes) == ("new", "alertmanager", "team=db db")
    assert (after.token_hash, after.watch) == (source.token_hash, None)


def test_a_test_is_shown_with_its_verdict(operator_client):
    source = SourceFactory()

    post(operator_client, "test_source", source.pk)
    judge_waiting()

    assert Delivery.objects.get().is_test
    assert "A test that you sent yourself" in (
        operator_client.get(f"/sources/{source.pk}/").content.decode()
    )


@pytest.mark.parametrize("name", ["renew_source", "remove_source"])
def test_harm_is_confirmed_first(operator_client, name):
    source = SourceFactory()

    post(operator_client, name, source.pk)

    assert Source.objects.get().token_hash == source.token_hash


def test_a_source_is_renewed_switched_and_removed(operator_client):
    source = SourceFactory()
    post(operator_client, "renew_source", source.pk, confirm="on")
    assert Source.objects.get().token_hash != source.token_hash
    post(operator_client, "disable_source", source.pk)
    assert not Source.objects.get().enabled
    post(operator_client, "enable_source", source.pk)
    assert Source.objects.get().enabled

    post(operator_client, "remove_source", source.pk, confirm="on")

    assert not Source.objects.exists()


def test_refused_requests_are_shown(operator_client, client):
    client.post("/in/unknown", b"{}", content_type="application/json")
    refusals.flush()

    assert "1 × unknown address" in operator_client.get("/sources/").content.decode()


def test_paths_are_chosen_from_a_sample_with_a_preview(operator_client):
    source = SourceFactory(kind="generic", watch=WatchFactory(name="shop"))
    body = '{"check": {"name": "web", "what": "<b>down</b>", "number": 4}}'
    page = operator_client.get(source.get_absolute_url()).content.decode()
    assert "Find its paths" in page

    guessed = post(operator_client, "paths_of_source", source.pk, sample=body)
    assert "check.what" in guessed.content.decode()
    chosen = {"path_fingerprint": "check.number", "path_summary": "check.what"}
    chosen |= {"path_service": "check.name", "path_state": "", "path_alerts": ""}
    seen = post(operator_client, "paths_of_source", source.pk, sample=body, **chosen)
    assert "&lt;b&gt;down&lt;/b&gt; <span" in seen.content.decode()
    assert Source.objects.get().paths == {}

    post(operator_client, "paths_of_source", source.pk, sample=body, **chosen, save="on")

    paths = Source.objects.get().paths
    assert (paths["fingerprint"], paths["state"]) == ("check.number", "")
    sources.set_paths(source, paths)


@pytest.mark.parametrize("sample", ["", "{", "[" * 50, "9" * 200_000])
def test_a_sample_that_is_none_is_refused_with_a_reason(operator_client, sample):
    source = SourceFactory(kind="generic", watch=WatchFactory(name="shop"))

    page = operator_client.post(f"/sources/{source.pk}/paths/", {"sample": sample, "save": "on"})

    assert (page.status_code, Source.objects.get().paths) == (422, {})
    assert 'role="alert"' in page.content.decode()


def test_paths_of_another_kind_are_refused(operator_client):
    source = SourceFactory(kind="alertmanager", watch=WatchFactory(name="shop"))
    assert "Choose paths" not in operator_client.get(source.get_absolute_url()).content.decode()

    page = operator_client.post(f"/sources/{source.pk}/paths/", {"sample": "{}", "save": "on"})

    assert (page.status_code, Source.objects.get().paths) == (422, {})
