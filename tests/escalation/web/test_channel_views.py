"""Pages of channels: add, test, edit, switch off, remove; addresses are never shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.urls import reverse

from escalation.notifications import sending
from escalation.notifications.sending import DeliveryResult
from escalation.web.channels import SERVICES, preview_of
from sessions_app.models import Channel, Message, TelegramBot
from sessions_app.redaction.encryption import address_of
from sessions_app.redaction.redact import redacted
from tests.escalation.notifications.post_offices import webhook
from tests.factories import ChannelFactory, MessageFactory, WatchFactory, user_with

pytestmark = pytest.mark.django_db
SECRET = "json://ada:hunter2hunter2@127.0.0.1:9/hook"
FILLED = {"name": "hook", "address": SECRET, "least_severity": "2"}


@pytest.fixture
def understood(monkeypatch) -> None:
    monkeypatch.setattr(
        sending, "look_at", lambda address: DeliveryResult(True, "", "JSON (127.0.0.1)")
    )


def post(client, act, *arguments, **data):
    return client.post(reverse(f"web:{act}", args=arguments), data, follow=True)


def test_a_channel_is_added_with_an_encrypted_address(operator_client, understood):
    watch = WatchFactory(name="shop")

    page = post(operator_client, "add_channel", **FILLED, watches=[watch.pk], digest_at="08:00")

    channel = Channel.objects.get()
    assert b"hunter2" not in bytes(channel.encrypted_address)
    assert address_of(channel) == SECRET
    assert list(channel.watches.all()) == [watch]
    assert page.redirect_chain == [(f"/channels/{channel.pk}/", 302)]
    assert "hook was added" in page.content.decode()


def test_no_page_shows_the_address(operator_client, understood):
    post(operator_client, "add_channel", **FILLED)
    channel = Channel.objects.get()

    for address in (
        "/channels/",
        f"/channels/{channel.pk}/",
        f"/admin/sessions_app/channel/{channel.pk}/change/",
    ):
        text = operator_client.get(address).content.decode()
        assert "hook" in text
        assert "hunter2" not in text


def test_a_new_address_is_redacted(operator_client, understood):
    post(operator_client, "add_channel", **FILLED)
    address_of(Channel.objects.get())

    assert redacted(f"it says {SECRET}") == "it says [redacted: notification address]"
    assert "hunter2hunter2" not in redacted("the password is, as it were, hunter2hunter2")


GIVEN = {
    "mail": {"host": "mail.example", "user": "ada@x.example", "password": "p@/s", "to": "b@x.io"},
    "ntfy": {"topic": "ops", "token": "tk_abc"},
    "slack": {
        "url": "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
    },
    "telegram": {"token": "123456789:abcdefg_hijklmnop", "chat": "-100123"},
    "discord": {"url": "https://discord.com/api/webhooks/4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js"},
    "webhook": {
        "url": "https://example.org/hook?a=b",
        "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    },
}


def test_each_service_has_fields_that_make_an_address_which_apprise_understands(operator_client):
    assert set(GIVEN) == set(SERVICES)
    for service, fields in GIVEN.items():
        page = operator_client.get("/channels/", {"service": service}).content.decode()
        assert f'name="service_{next(iter(fields))}"' in page
        assert 'name="address"' not in page
        own = {f"service_{name}": value for name, value in fields.items()}
        post(operator_client, "add_channel", **own, service=service, name=service, least_severity=2)
    added = Channel.objects.order_by("pk").values_list("name", flat=True)
    assert list(added) == list(GIVEN)

    refused = post(operator_client, "add_channel", service="ntfy", name="n", least_severity=2)
    assert refused.status_code == 422


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
def test_errors_are_shown_beside_their_fields_and_input_is_kept(
    operator_client, understood, wrong, said
):
    ChannelFactory(name="taken")

    page = post(operator_client, "add_channel", **{**FILLED, "digest_at": "08:15", **wrong})

    text = page.content.decode()
    assert page.status_code == 422
    assert said in text
    assert "08:15" in text
    assert "hunter2" not in text
    assert Channel.objects.count() == 1


def test_an_address_that_apprise_does_not_understand_is_refused(operator_client):
    page = post(
        operator_client, "add_channel", **{**FILLED, "address": "nonsense://hunter2hunter2"}
    )

    text = page.content.decode()
    assert page.status_code == 422
    assert "Apprise does not support this address" in text
    assert "hunter2" not in text


def test_an_edit_without_an_address_keeps_the_one_that_is_there(operator_client):
    channel = ChannelFactory(address=SECRET)

    post(operator_client, "edit_channel", channel.pk, name="new name", least_severity="3")

    channel.refresh_from_db()
    assert (channel.name, channel.least_severity) == ("new name", 3)
    assert address_of(channel) == SECRET


def test_an_edit_with_an_address_replaces_it(operator_client, understood):
    channel = ChannelFactory(address="json://127.0.0.1:1/")

    post(operator_client, "edit_channel", channel.pk, **FILLED)

    channel.refresh_from_db()
    assert address_of(channel) == SECRET


@pytest.fixture
def meanwhile(monkeypatch) -> Callable[[Callable[[], object]], None]:
    """Let another request act while Apprise is asked, which takes long."""

    def let(act: Callable[[], object]) -> None:
        def asked(address: str, **message: str) -> DeliveryResult:
            act()
            return DeliveryResult(True, "", "JSON")

        monkeypatch.setattr(sending, "look_at", asked)
        monkeypatch.setattr(sending, "deliver", asked)

    return let


def test_an_edit_keeps_what_another_request_changed(operator_client, meanwhile):
    channel = ChannelFactory()
    meanwhile(lambda: sending.set_enabled(channel, enabled=False))

    post(operator_client, "edit_channel", channel.pk, **FILLED)

    channel.refresh_from_db()
    assert (channel.name, channel.enabled, address_of(channel)) == ("hook", False, SECRET)


def test_an_edit_does_not_restore_a_channel_that_was_removed(operator_client, meanwhile):
    channel = ChannelFactory()
    meanwhile(Channel.objects.all().delete)

    page = post(operator_client, "edit_channel", channel.pk, **FILLED)

    assert page.status_code == 404
    assert not Channel.objects.exists()


def test_a_name_that_was_taken_meanwhile_is_refused(operator_client, meanwhile):
    meanwhile(lambda: ChannelFactory(name=FILLED["name"]))

    page = post(operator_client, "add_channel", **FILLED)

    assert (page.status_code, Channel.objects.count()) == (422, 1)
    assert list(page.context["form"].errors) == ["name"]


def test_a_test_of_a_channel_that_was_removed_is_not_stored(operator_client, meanwhile):
    channel = ChannelFactory()
    meanwhile(Channel.objects.all().delete)

    page = post(operator_client, "test_channel", channel.pk)

    assert page.status_code == 404
    assert not Message.objects.exists()


def test_a_test_arrives_and_is_shown(operator_client):
    with webhook() as hook:
        channel = ChannelFactory(address=hook.address, failures_in_a_row=3, last_error="before")

        page = post(operator_client, "test_channel", channel.pk)

        assert [got["title"] for got in hook.got] == ["Claude Ops: a test"]
    channel.refresh_from_db()
    assert "The test was sent" in page.content.decode()
    assert (channel.failures_in_a_row, channel.last_error) == (0, "")
    assert Message.objects.get().state == Message.State.SENT


def test_a_test_that_fails_says_why(operator_client):
    with webhook() as hook:
        hook.status = 500
        channel = ChannelFactory(address=hook.address)

        page = post(operator_client, "test_channel", channel.pk)

    text = page.content.decode()
    channel.refresh_from_db()
    assert "The test did not reach" in text
    assert "500" in text
    assert channel.failures_in_a_row == 1
    assert Message.objects.get().state == Message.State.FAILED


def test_switching_off_gives_up_waiting_messages(operator_client):
    message = MessageFactory()

    page = post(operator_client, "disable_channel", message.channel_id)

    message.refresh_from_db()
    assert "1 waiting messages are not sent" in page.content.decode()
    assert (message.state, message.channel.enabled) == (Message.State.FAILED, False)

    post(operator_client, "enable_channel", message.channel_id)
    message.channel.refresh_from_db()
    assert message.channel.enabled


def test_removal_needs_confirmation(operator_client):
    channel = ChannelFactory()

    post(operator_client, "remove_channel", channel.pk)
    assert Channel.objects.exists()

    post(operator_client, "remove_channel", channel.pk, confirm="on")
    assert not Channel.objects.exists()


def test_an_empty_page_says_how_to_add_a_channel(operator_client):
    assert "There is no channel yet" in operator_client.get("/channels/").content.decode()


def test_only_accounts_that_manage_keys_see_the_page(client):
    client.force_login(user_with("approver"))

    assert "/channels/" not in client.get("/").content.decode()


def test_each_service_shows_what_a_message_looks_like(operator_client):
    buttons = {"ntfy": ["Approve", "Reject", "Open"], "telegram": ["Approve", "Reject"]}
    buttons["slack"] = ["Approve…", "Reject…", "Open"]
    for name in SERVICES:
        preview = preview_of(name)
        page = operator_client.get("/channels/", {"service": name}).content.decode()
        assert preview.label in page
        assert "docker restart web" in page
        assert list(preview.buttons) == buttons.get(name, [])
        assert page.count('<span class="chip">') == len(preview.buttons)


def test_a_channel_says_that_pressed_buttons_do_not_arrive(operator_client):
    channel = ChannelFactory(address="tgram://123456789:AABB_cc-dd/42", service="Telegram")
    TelegramBot.objects.create(number=123456789, error="Telegram answered with 409: Conflict")

    page = operator_client.get(f"/channels/{channel.pk}/").content.decode()

    assert "Telegram answered with 409: Conflict" in page
    assert "AABB_cc-dd" not in page
    assert "Telegram: a request for approval" in page
