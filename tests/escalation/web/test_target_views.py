"""Targets on their pages: made, tried, changed, switched off, removed; never their addresses."""

from __future__ import annotations

import pytest
from django.urls import reverse

from escalation.word import courier
from escalation.word.courier import Answer
from sessions_app.models import Message, Target
from sessions_app.reading.masking import masked
from sessions_app.reading.target_addresses import address_of
from tests.escalation.word.post_offices import webhook
from tests.factories import MessageFactory, TargetFactory, WatchFactory, user_with

pytestmark = pytest.mark.django_db
SECRET = "json://ada:hunter2hunter2@127.0.0.1:9/hook"
FILLED = {"name": "hook", "address": SECRET, "least_severity": "2"}


@pytest.fixture
def understood(monkeypatch) -> None:
    monkeypatch.setattr(courier, "look_at", lambda address: Answer(True, "", "JSON (127.0.0.1)"))


def post(client, act, *arguments, **data):
    return client.post(reverse(f"escalation:{act}", args=arguments), data, follow=True)


def test_a_target_is_made_with_a_sealed_address(operator_client, understood):
    watch = WatchFactory(name="shop")

    page = post(operator_client, "add_target", **FILLED, watches=[watch.pk], digest_at="08:00")

    target = Target.objects.get()
    assert b"hunter2" not in bytes(target.sealed_address)
    assert address_of(target) == SECRET
    assert list(target.watches.all()) == [watch]
    assert page.redirect_chain == [(f"/targets/{target.pk}/", 302)]
    assert "hook is made" in page.content.decode()


def test_the_address_is_on_no_page_again(operator_client, understood):
    post(operator_client, "add_target", **FILLED)
    target = Target.objects.get()

    for address in (
        "/targets/",
        f"/targets/{target.pk}/",
        f"/admin/sessions_app/target/{target.pk}/change/",
    ):
        text = operator_client.get(address).content.decode()
        assert "hook" in text
        assert "hunter2" not in text


def test_an_address_is_known_to_the_masking_from_then_on(operator_client, understood):
    post(operator_client, "add_target", **FILLED)
    address_of(Target.objects.get())

    assert masked(f"it says {SECRET}") == "it says [masked: notification address]"
    assert "hunter2hunter2" not in masked("the password is, as it were, hunter2hunter2")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"address": ""}, "This field is required"),
        ({"address": "two words"}, "one line, without spaces"),
        ({"address": "x" * 2001}, "at most 2000 characters"),
        ({"name": ""}, "This field is required"),
        ({"name": "x" * 101}, "at most 100 characters"),
        ({"name": "taken"}, "already exists"),
        ({"quiet_from": "22:00"}, "give both, or none"),
        ({"quiet_from": "late", "quiet_until": "07:00"}, "Enter a valid time"),
        ({"least_severity": "9"}, "Select a valid choice"),
        ({"watches": ["7"]}, "Select a valid choice"),
        ({"watches": ["9" * 400]}, "is not a valid value"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_the_rest_stays(
    operator_client, understood, wrong, said
):
    TargetFactory(name="taken")

    page = post(operator_client, "add_target", **{**FILLED, "digest_at": "08:15", **wrong})

    text = page.content.decode()
    assert page.status_code == 422
    assert said in text
    assert "08:15" in text
    assert "hunter2" not in text
    assert Target.objects.count() == 1


def test_an_address_that_apprise_does_not_understand_is_refused(operator_client):
    page = post(operator_client, "add_target", **{**FILLED, "address": "nonsense://hunter2hunter2"})

    text = page.content.decode()
    assert page.status_code == 422
    assert "no address that Apprise understands" in text
    assert "hunter2" not in text


def test_an_edit_without_an_address_keeps_the_one_that_is_there(operator_client):
    target = TargetFactory(address=SECRET)

    post(operator_client, "edit_target", target.pk, name="new name", least_severity="3")

    target.refresh_from_db()
    assert (target.name, target.least_severity) == ("new name", 3)
    assert address_of(target) == SECRET


def test_an_edit_with_an_address_replaces_it(operator_client, understood):
    target = TargetFactory(address="json://127.0.0.1:1/")

    post(operator_client, "edit_target", target.pk, **FILLED)

    target.refresh_from_db()
    assert address_of(target) == SECRET


def test_a_test_arrives_and_is_shown(operator_client):
    with webhook() as hook:
        target = TargetFactory(address=hook.address, failures_in_a_row=3, last_error="before")

        page = post(operator_client, "test_target", target.pk)

        assert [got["title"] for got in hook.got] == ["Claude Ops: a test"]
    target.refresh_from_db()
    assert "The test was sent" in page.content.decode()
    assert (target.failures_in_a_row, target.last_error) == (0, "")
    assert Message.objects.get().state == Message.State.SENT


def test_a_test_that_fails_says_why(operator_client):
    with webhook() as hook:
        hook.status = 500
        target = TargetFactory(address=hook.address)

        page = post(operator_client, "test_target", target.pk)

    text = page.content.decode()
    target.refresh_from_db()
    assert "The test did not reach" in text
    assert "500" in text
    assert target.failures_in_a_row == 1
    assert Message.objects.get().state == Message.State.FAILED


def test_switched_off_it_gets_nothing_that_still_waited(operator_client):
    message = MessageFactory()

    page = post(operator_client, "disable_target", message.target_id)

    message.refresh_from_db()
    assert "1 waiting messages are not sent" in page.content.decode()
    assert (message.state, message.target.enabled) == (Message.State.FAILED, False)

    post(operator_client, "enable_target", message.target_id)
    message.target.refresh_from_db()
    assert message.target.enabled


def test_it_is_removed_only_when_that_is_meant(operator_client):
    target = TargetFactory()

    post(operator_client, "remove_target", target.pk)
    assert Target.objects.exists()

    post(operator_client, "remove_target", target.pk, confirm="on")
    assert not Target.objects.exists()


def test_without_any_the_page_says_what_to_do(operator_client):
    assert "Nobody is told anything yet" in operator_client.get("/targets/").content.decode()


def test_only_who_manages_keys_is_offered_the_page(client):
    client.force_login(user_with("approver"))

    assert "/targets/" not in client.get("/").content.decode()
