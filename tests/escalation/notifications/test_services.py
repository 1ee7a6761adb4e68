"""Messages with buttons, sent to servers that take them as ntfy, Telegram and Slack do."""

from __future__ import annotations

from typing import Any

from escalation.notifications import services
from escalation.notifications.sending import deliver
from escalation.notifications.services import ButtonMessage
from tests.escalation.notifications.post_offices import bot_api
from tests.tables import each_row

LINK = "https://ops.example.org/approvals/7/"
ANSWERS = {"approve": "https://ops.example.org/yes/", "reject": "https://ops.example.org/no/"}
ASKED: dict[str, Any] = {
    "title": "shop: may `docker restart web` run?",
    "body": "Command: docker restart web\nIt said <down> & out.",
    "type": "warning",
    "event": {},
    "link": LINK,
}


def test_ntfy_gets_its_json_with_buttons_that_post(hook):
    address = f"ntfy://tk_secret@{hook.place}/ops?auth=token"

    answer = deliver(address, **ASKED, buttons=ANSWERS)

    assert (answer.ok, answer.error) == (True, "")
    [(path, headers, _body)] = hook.requests
    assert (path, headers["Authorization"]) == ("/", "Bearer tk_secret")
    [got] = hook.got
    assert (got["topic"], got["title"], got["message"]) == ("ops", ASKED["title"], ASKED["body"])
    assert (got["priority"], got["tags"], got["click"]) == (4, ["warning"], LINK)
    assert got["actions"] == [
        {"action": "http", "label": "Approve", "url": ANSWERS["approve"], "method": "POST"}
        | {"clear": True},
        {"action": "http", "label": "Reject", "url": ANSWERS["reject"], "method": "POST"}
        | {"clear": True},
        {"action": "view", "label": "Open", "url": LINK},
    ]


def test_ntfy_without_buttons_opens_the_page_by_a_tap(hook):
    answer = deliver(f"ntfy://ada:hunter2@{hook.place}/ops", **ASKED)

    assert answer.ok
    [(_path, headers, _body)] = hook.requests
    assert headers["X-Click"] == LINK
    assert hook.got[0]["message"] == f"{ASKED['body']}\n\n{LINK}"


def test_a_text_that_ntfy_would_not_show_whole_cannot_be_approved():
    long = ButtonMessage(title="t", text="ä" * 3_000, link=LINK, buttons=ANSWERS)

    body = services.ntfy_body(long, "ops")

    assert [act["label"] for act in body["actions"]] == ["Reject", "Open"]
    assert len(body["message"].encode()) <= services.NTFY_BYTES


def test_telegram_gets_an_inline_keyboard_and_escaped_text():
    with bot_api() as bot:
        answer = deliver(bot.address(42), **ASKED, buttons={"approve": "a.1", "reject": "r.1"})

        assert (answer.ok, answer.error) == (True, "")
        [sent] = bot.said("sendMessage")
    assert sent["chat_id"] == 42
    assert "It said &lt;down&gt; &amp; out." in sent["text"]
    assert sent["text"].endswith(LINK)
    assert sent["reply_markup"]["inline_keyboard"] == [
        [
            {"text": "Approve", "callback_data": "a.1"},
            {"text": "Reject", "callback_data": "r.1"},
        ]
    ]


def test_slack_gets_blocks_with_buttons_that_open_pages(hook):
    address = f"slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?api=http://{hook.place}"

    answer = deliver(address, **ASKED, buttons=ANSWERS)

    assert (answer.ok, answer.error) == (True, "")
    [(path, _headers, _body)] = hook.requests
    assert path == "/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
    header, section, actions = hook.got[0]["blocks"]
    assert header["text"]["text"] == ASKED["title"]
    assert "It said &lt;down&gt; &amp; out." in section["text"]["text"]
    assert [(one["text"]["text"], one["url"]) for one in actions["elements"]] == [
        ("Approve…", ANSWERS["approve"]),
        ("Reject…", ANSWERS["reject"]),
        ("Open", LINK),
    ]


def test_a_service_that_fails_is_reported_without_its_token(hook):
    with bot_api() as bot:
        for status, error in ((429, {"description": "Too Many Requests"}), (500, {})):
            bot.errors["sendMessage"] = (status, error)
            answer = deliver(bot.address(42), **ASKED, buttons=ANSWERS)
            assert not answer.ok
            assert str(status) in answer.error
            assert bot.token not in answer.error
    hook.status = 500
    for address in (
        f"ntfy://{hook.place}/ops",
        f"slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?api=http://{hook.place}",
    ):
        answer = deliver(address, **ASKED, buttons=ANSWERS)
        assert not answer.ok
        assert "500" in answer.error
        assert "TIiajkdnlazkcOXrIdevi7FQ" not in answer.error


@each_row(
    "address, service",
    [
        ("ntfy://topic", "ntfy"),
        ("ntfys://ntfy.example.org/topic", "ntfy"),
        ("https://ntfy.sh/topic", "ntfy"),
        ("tgram://123456789:AABB_cc-dd/42", "telegram"),
        ("tgram://bot123456789:AABB_cc-dd/42/", "telegram"),
        ("tgram://123456789:AABB_cc-dd/-10042", ""),
        ("tgram://123456789:AABB_cc-dd/@channel", ""),
        ("tgram://123456789:AABB_cc-dd/42/43", ""),
        ("https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "slack"),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general", ""),
        ("mailto://example.org", ""),
        ("json://ntfy/", ""),
    ],
)
def test_buttons_are_sent_where_one_person_answers(address, service):
    assert services.service_of(address) == service
