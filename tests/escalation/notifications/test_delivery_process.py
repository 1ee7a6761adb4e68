"""Delivery of a message through Apprise's real plugins to real servers on this machine."""

from __future__ import annotations

import time

from escalation.notifications import sending
from escalation.notifications.sending import deliver, look_at
from tests.escalation.notifications.post_offices import own_certificate, webhook
from tests.tables import each_row

LINK = "http://ops.example.org/incidents/1/"
WORD = {"title": "shop: web is down", "body": "It answers 502.", "type": "failure"}


def test_a_webhook_gets_title_text_and_kind(hook):
    answer = deliver(hook.address, **WORD)

    assert (answer.ok, answer.error) == (True, "")
    [got] = hook.got
    assert got["title"] == "shop: web is down"
    assert got["message"] == "It answers 502."
    assert got["type"] == "failure"


def test_a_mail_arrives_with_its_subject_and_its_text(mailbox):
    address = f"mailto://127.0.0.1:{mailbox.port}/?from=ops@example.org&to=ada@example.org"

    answer = deliver(address, **{**WORD, "body": f"5 < 6 & <b>not bold</b>\n{LINK}"})

    assert (answer.ok, answer.error) == (True, "")
    [mail] = mailbox.mails
    assert mail["subject"] == "shop: web is down"
    assert mail["to"] == "ada@example.org"
    text = mail.get_body(("html", "plain"))
    assert text.get_content_type() == "text/plain"
    assert text.get_content().split() == ["5", "<", "6", "&", "<b>not", "bold</b>", LINK]


def test_reports_an_error_of_the_service(hook):
    hook.status = 500

    answer = deliver(hook.address, **WORD)

    assert not answer.ok
    assert "500" in answer.error


def test_reports_a_timeout_when_the_service_hangs(hook, monkeypatch):
    hook.hangs = True
    monkeypatch.setattr(sending, "TIMEOUT_SECONDS", 2.0)
    began = time.monotonic()

    answer = deliver(f"{hook.address}?rto=60", **WORD)

    assert time.monotonic() - began < 6
    assert (answer.ok, answer.error) == (False, "No response within 2 s.")


def test_reports_an_untrusted_certificate_and_sends_nothing(tmp_path):
    with webhook(own_certificate(tmp_path)) as server:
        answer = deliver(f"jsons://{server.place}/hidden-token", **WORD)

        assert not answer.ok
        assert "certificate verify failed" in answer.error
        assert "hidden-token" not in answer.error
        assert server.got == []


def test_reports_a_refused_connection_without_secrets_of_the_address():
    answer = deliver("json://ada:hunter2secret@127.0.0.1:9/topsecretpath", **WORD)

    assert not answer.ok
    assert "127.0.0.1" in answer.error
    assert "hunter2secret" not in answer.error
    assert "topsecretpath" not in answer.error


SHOWN = {
    "json://ada:hunter2@127.0.0.1:8000/path": "JSON (127.0.0.1)",
    "mailtos://ops:hunter2@smtp.example.org?to=ada@example.org": "E-Mail (smtp.example.org)",
    "ntfys://ntfy.example.org/our-topic": "ntfy (ntfy.example.org)",
    "ntfy://a-topic-is-a-password": "ntfy",
    "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/": "Slack",
    "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js": "Discord",
    "tgram://123456789:AABBCCDDEEFFaabbccddeeff/12315544/": "Telegram",
}


@each_row("address", SHOWN)
def test_only_service_and_host_of_an_address_are_shown(address):
    answer = look_at(address)

    assert (answer.ok, answer.error) == (True, "")
    assert answer.service == SHOWN[address]


@each_row(
    "address",
    ["", "hunter2secret", "nonsense://hunter2secret", "mailto://", "slack://hunter2secret"],
)
def test_an_unsupported_address_is_refused_without_being_shown(address):
    answer = look_at(address)

    assert not answer.ok
    assert "Apprise does not support this address" in answer.error
    assert "hunter2secret" not in answer.error
