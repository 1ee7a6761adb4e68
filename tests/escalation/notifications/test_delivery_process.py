"""Delivery of a message through Apprise's real plugins to real servers on this machine."""

from __future__ import annotations

import base64
import hmac
import time
from typing import Any

from escalation.notifications import sending
from escalation.notifications.sending import deliver, look_at
from tests.escalation.notifications.post_offices import own_certificate, webhook
from tests.tables import each_row

LINK = "http://ops.example.org/incidents/1/"
EVENT = {"id": "msg_41", "type": "incident.opened", "version": 1, "title": "web is down"}
WORD: dict[str, Any] = {
    "title": "shop: web is down",
    "body": "It answers 502.",
    "type": "failure",
    "event": EVENT,
}
SECRET = bytes(range(200, 232))
SIGNED = f"secret=whsec_{base64.b64encode(SECRET).decode()}"


def test_a_signed_webhook_gets_the_event(hook):
    answer = deliver(f"webhook://{hook.place}/hooks/ops?team=a&{SIGNED}", **WORD)

    assert (answer.ok, answer.error, answer.service) == (True, "", "webhook (127.0.0.1)")
    assert hook.got == [EVENT]
    [(path, headers, body)] = hook.requests
    assert path == "/hooks/ops?team=a"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.digest(SECRET, signed, "sha256")
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert headers["webhook-id"] == "msg_41"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60


@each_row("status", [302, 400, 500])
def test_any_answer_of_a_webhook_but_2xx_is_a_failure(hook, status):
    hook.status = status
    address = f"webhook://{hook.place}/a-secret-path?{SIGNED}"

    answer = deliver(address, **WORD)

    assert not answer.ok
    assert str(status) in answer.error


def test_a_webhook_that_refuses_connections_keeps_its_address_secret(hook):
    port = hook.server_address[1]
    hook.server_close()

    answer = deliver(f"webhook://127.0.0.1:{port}/a-secret-path?{SIGNED}", **WORD)

    assert not answer.ok
    assert "refused" in answer.error
    assert "a-secret-path" not in answer.error


@each_row(
    "address",
    [
        "webhooks://example.org/hook",
        "webhooks://example.org/hook?secret=whsec_c2hvcnQ=",
        "webhooks://example.org/hook?secret=not base64 at all, but long enough to be one",
        f"webhooks:///hook?{SIGNED}",
        f"webhooks://example.org:99999/hook?{SIGNED}",
    ],
)
def test_a_webhook_without_host_or_secret_is_refused(address):
    found = look_at(address)

    assert not found.ok
    assert found.error


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
