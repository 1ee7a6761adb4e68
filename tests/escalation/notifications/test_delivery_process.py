"""A message on its way, through Apprise's real plugins, to real servers on this machine."""

from __future__ import annotations

import time

import pytest

from escalation.word import courier
from escalation.word.courier import deliver, look_at
from tests.escalation.word.post_offices import own_certificate, webhook

LINK = "http://ops.example.org/incidents/1/"
WORD = {"title": "shop: web is down", "body": "It answers 502.", "type": "failure"}


def test_a_webhook_gets_title_text_and_kind(hook):
    answer = deliver(hook.address, **WORD)

    assert (answer.ok, answer.said) == (True, "")
    [got] = hook.got
    assert got["title"] == "shop: web is down"
    assert got["message"] == "It answers 502."
    assert got["type"] == "failure"


def test_a_mail_arrives_with_its_subject_and_its_text(mailbox):
    address = f"mailto://127.0.0.1:{mailbox.port}/?from=ops@example.org&to=ada@example.org"

    answer = deliver(address, **{**WORD, "body": f"5 < 6 & <b>not bold</b>\n{LINK}"})

    assert (answer.ok, answer.said) == (True, "")
    [mail] = mailbox.mails
    assert mail["subject"] == "shop: web is down"
    assert mail["to"] == "ada@example.org"
    text = mail.get_body(("html", "plain"))
    assert text.get_content_type() == "text/plain"
    assert text.get_content().split() == ["5", "<", "6", "&", "<b>not", "bold</b>", LINK]


def test_an_error_of_the_service_is_told(hook):
    hook.status = 500

    answer = deliver(hook.address, **WORD)

    assert not answer.ok
    assert "500" in answer.said


def test_a_target_that_hangs_is_left_after_a_while(hook, monkeypatch):
    hook.hangs = True
    monkeypatch.setattr(courier, "PATIENCE_SECONDS", 2.0)
    began = time.monotonic()

    answer = deliver(f"{hook.address}?rto=60", **WORD)

    assert time.monotonic() - began < 6
    assert (answer.ok, answer.said) == (False, "It gave no answer within 2 s.")


def test_a_certificate_that_nobody_trusts_is_told_and_nothing_is_sent(tmp_path):
    with webhook(own_certificate(tmp_path)) as server:
        answer = deliver(f"jsons://{server.place}/hidden-token", **WORD)

        assert not answer.ok
        assert "certificate verify failed" in answer.said
        assert "hidden-token" not in answer.said
        assert server.got == []


def test_where_nobody_listens_it_says_so_without_the_secrets_of_the_address():
    answer = deliver("json://ada:hunter2secret@127.0.0.1:9/topsecretpath", **WORD)

    assert not answer.ok
    assert "127.0.0.1" in answer.said
    assert "hunter2secret" not in answer.said
    assert "topsecretpath" not in answer.said


SHOWN = {
    "json://ada:hunter2@127.0.0.1:8000/path": "JSON (127.0.0.1)",
    "mailtos://ops:hunter2@smtp.example.org?to=ada@example.org": "E-Mail (smtp.example.org)",
    "ntfys://ntfy.example.org/our-topic": "ntfy (ntfy.example.org)",
    "ntfy://a-topic-is-a-password": "ntfy",
    "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/": "Slack",
    "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js": "Discord",
    "tgram://123456789:AABBCCDDEEFFaabbccddeeff/12315544/": "Telegram",
}


@pytest.mark.parametrize("address", SHOWN)
def test_of_an_address_only_service_and_machine_are_shown(address):
    answer = look_at(address)

    assert (answer.ok, answer.said) == (True, "")
    assert answer.service == SHOWN[address]


@pytest.mark.parametrize(
    "address",
    ["", "hunter2secret", "nonsense://hunter2secret", "mailto://", "slack://hunter2secret"],
)
def test_what_is_no_address_is_refused_without_being_shown(address):
    answer = look_at(address)

    assert not answer.ok
    assert "no address that Apprise understands" in answer.said
    assert "hunter2secret" not in answer.said
