"""The page of a transcript, on entries as the CLI writes them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from escalation.web import transcripts
from sessions_app.archive.transcripts import append_entries
from sessions_app.models import Session, TranscriptChunk
from tests.factories import ChannelFactory, SessionFactory

PROJECT = "-srv-shop"
HTMX = {"HX-Request": "true"}


class Talk:
    """A transcript in the making: each entry answers the one before, unless it says otherwise."""

    def __init__(self, session: Session, subpath: str = "") -> None:
        self.key: Any = {"project_key": PROJECT, "session_id": session.session_id}
        if subpath:
            self.key["subpath"] = subpath
        self.entries: list[dict[str, Any]] = []

    def add(self, kind: str, uuid: str, parent: str | None = "", **fields: Any) -> Talk:
        before = self.entries[-1]["uuid"] if self.entries else None
        self.entries.append(
            {
                "type": kind,
                "uuid": uuid,
                "parentUuid": before if parent == "" else parent,
                "timestamp": "2026-05-04T10:00:00.000Z",
                "isSidechain": "subpath" in self.key,
                **fields,
            }
        )
        return self

    def ask(self, uuid: str, text: str, **fields: Any) -> Talk:
        return self.add("user", uuid, message={"role": "user", "content": text}, **fields)

    def say(self, uuid: str, text: str, **fields: Any) -> Talk:
        blocks = [{"type": "text", "text": text}]
        return self.add("assistant", uuid, message={"id": uuid, "content": blocks}, **fields)

    def call(self, uuid: str, command: str, *, turn: str) -> Talk:
        block = {"type": "tool_use", "id": f"t-{uuid}", "name": "Bash", "input": {}}
        block["input"] = {"command": command}
        return self.add("assistant", uuid, message={"id": turn, "content": [block]})

    def answer(self, uuid: str, call: str, text: str) -> Talk:
        block = {"type": "tool_result", "tool_use_id": f"t-{call}", "content": text}
        message = {"role": "user", "content": [block]}
        return self.add("user", uuid, call, message=message, sourceToolAssistantUUID=call)

    def keep(self) -> None:
        append_entries(self.key, self.entries)


@pytest.fixture
def session(db) -> Session:
    return SessionFactory()


@pytest.fixture
def talk(session: Session) -> Talk:
    return Talk(session)


def address(session: Session, query: str = "") -> str:
    return reverse("web:transcript", args=[session.pk]) + query


def page(client: Client, session: Session, query: str = "", **headers: str) -> str:
    response = client.get(address(session, query), headers=headers)
    assert response.status_code == 200
    return response.content.decode()


def in_order(text: str, *words: str) -> bool:
    places = [text.find(word) for word in words]
    return -1 not in places and places == sorted(places)


def test_it_shows_the_conversation_in_order(operator_client, session, talk):
    talk.ask("a", "Look at the shop.").say("b", "All is well.").keep()

    shown = page(operator_client, session)

    assert in_order(shown, "Look at the shop.", "All is well.")
    assert "messages 1–2 of 2" in shown


def test_it_orders_by_parent_links_and_not_by_lines(operator_client, session, talk):
    talk.say("c", "third", parent="b").say("b", "second", parent="a").ask("a", "first", parent=None)
    talk.keep()

    assert in_order(page(operator_client, session), "first", "second", "third")


def test_it_leaves_out_a_branch_that_was_abandoned(operator_client, session, talk):
    talk.ask("a", "question").say("b", "lost answer").say("c", "kept answer", parent="a").keep()

    shown = page(operator_client, session)

    assert "kept answer" in shown
    assert "lost answer" not in shown


def test_it_shows_every_call_and_result_of_a_parallel_turn(operator_client, session, talk):
    talk.ask("a", "Look.").call("b", "docker ps", turn="m1").call("c", "probe web", turn="m1")
    talk.answer("d", "b", "web exited").answer("e", "c", "refused").say("f", "Done.", parent="e")
    talk.keep()

    shown = page(operator_client, session)

    assert all(word in shown for word in ("docker ps", "probe web", "web exited", "refused"))
    assert in_order(shown, "docker ps", "refused", "Done.")


def test_output_of_a_command_that_prints_secrets_is_redacted(operator_client, session, talk):
    talk.ask("a", "Look.").call("b", "cat server.key", turn="m1").answer(
        "c", "b", "hunter-and-more"
    )
    talk.keep()

    shown = page(operator_client, session)

    assert "cat server.key" in shown
    assert "hunter-and-more" not in shown


def compacted(talk: Talk) -> Talk:
    talk.ask("a", "first question").say("b", "first answer")
    talk.add("system", "x", None, subtype="compact_boundary", logicalParentUuid="b")
    talk.ask("s", "This session is being continued. Summary: all quiet.", isCompactSummary=True)
    return talk.ask("c", "second question").say("d", "second answer")


def test_it_shows_what_was_said_before_a_compaction_too(operator_client, session, talk):
    compacted(talk).keep()

    shown = page(operator_client, session)

    assert in_order(
        shown,
        "first question",
        "first answer",
        "Conversation compacted",
        "Summary: all quiet.",
        "second question",
        "second answer",
    )
    assert shown.count("first answer") == 1


def test_it_shows_all_parts_of_a_conversation_compacted_twice(operator_client, session, talk):
    compacted(talk)
    talk.add("system", "y", None, subtype="compact_boundary", logicalParentUuid="d")
    talk.ask("u", "Summary again.", isCompactSummary=True).say("e", "third answer").keep()

    shown = page(operator_client, session)

    assert in_order(shown, "first answer", "second answer", "Summary again.", "third answer")
    assert shown.count("Conversation compacted") == 2


def test_it_hides_internal_entries_of_the_cli(operator_client, session, talk):
    talk.ask("a", "question").add("attachment", "b", attachment={"type": "secret snapshot"})
    talk.ask("c", "caveat for the model", isMeta=True).say("d", "answer").keep()

    shown = page(operator_client, session)

    assert "secret snapshot" not in shown
    assert "caveat for the model" not in shown
    assert in_order(shown, "question", "answer")


def test_it_marks_where_this_session_began(operator_client, talk, session):
    began = session.started_at
    earlier, later = began - timedelta(hours=1), began + timedelta(seconds=1)
    talk.ask("a", "of Tier 1", timestamp=earlier.isoformat())
    talk.say("b", "also Tier 1", timestamp=earlier.isoformat())
    talk.ask("c", "of this run", timestamp=later.isoformat()).keep()

    shown = page(operator_client, session)

    mark = f"Session #{session.pk} (Tier 1) began here."
    assert in_order(shown, "also Tier 1", mark, "of this run")


def test_it_has_no_mark_when_this_session_began_the_conversation(operator_client, talk, session):
    talk.ask("a", "hello", timestamp=timezone.now().isoformat()).keep()

    assert "began here" not in page(operator_client, session)


def long_talk(talk: Talk, length: int) -> None:
    for number in range(1, length + 1):
        talk.say(f"u{number}", f"word-{number}.")
    talk.keep()


def test_it_shows_fifty_messages_a_page(operator_client, session, talk):
    long_talk(talk, 120)

    first, last = page(operator_client, session), page(operator_client, session, "?page=3")

    assert "messages 1–50 of 120 · page 1 of 3" in first
    assert "word-50." in first
    assert "word-51." not in first
    assert "messages 101–120 of 120" in last
    assert 'id="message-101"' in last


def test_it_pages_with_plain_links_and_with_htmx(operator_client, session, talk):
    long_talk(talk, 60)

    shown = page(operator_client, session)

    following = f"{address(session)}?page=2"
    assert f'href="{following}" hx-get="{following}"' in shown


@pytest.mark.parametrize("number", ["0", "-1", "99", "x", "", "9" * 400, "²"])
def test_an_invalid_page_number_shows_a_page(operator_client, session, talk, number):
    long_talk(talk, 60)

    assert "of 60" in page(operator_client, session, f"?page={number}")


def test_an_htmx_request_gets_only_the_part_that_changes(operator_client, session, talk):
    long_talk(talk, 60)

    shown = page(operator_client, session, "?page=2", **HTMX)

    assert shown.strip().startswith('<section id="transcript"')
    assert "<html" not in shown


def with_subagent(session: Session, talk: Talk) -> None:
    talk.ask("a", "Look.").say("b", "I asked around.").keep()
    aside = Talk(session, "subagents/agent-a79")
    aside.ask("s", "count the logs").call("t", "ls", turn="m").call("u", "wc -l", turn="m")
    aside.answer("v", "t", "two files").answer("w", "u", "90 lines").say("x", "counted")
    aside.add("agent_metadata", "m", description="count <logs>", agentType="Explore")
    aside.keep()


def test_it_lists_the_subagents(operator_client, session, talk):
    with_subagent(session, talk)

    shown = page(operator_client, session)

    assert f'href="{address(session)}?agent=a79"' in shown
    assert "count &lt;logs&gt;" in shown
    assert "Explore" in shown
    assert "90 lines" not in shown


def test_it_shows_a_subagent_with_its_parallel_calls(operator_client, session, talk):
    with_subagent(session, talk)

    shown = page(operator_client, session, "?agent=a79")

    assert "Subagent: count &lt;logs&gt;" in shown
    assert in_order(shown, "count the logs", "two files", "counted")
    assert "90 lines" in shown
    assert "I asked around." not in shown


def test_it_pages_within_a_subagent(operator_client, session, talk):
    talk.ask("a", "Look.").keep()
    long_talk(Talk(session, "subagents/agent-a79"), 60)

    assert "?agent=a79&amp;page=2" in page(operator_client, session, "?agent=a79")


@pytest.mark.parametrize("agent", ["unknown", "../../x"])
def test_an_unknown_subagent_is_not_found(operator_client, session, talk, agent):
    with_subagent(session, talk)

    assert operator_client.get(address(session, f"?agent={agent}")).status_code == 404


def test_it_escapes_hostile_text(operator_client, session, talk):
    talk.ask("a", "<script>alert(1)</script>")
    talk.say("b", '<img src=x onerror="alert(2)"> \x1b[31mred \x00 \ud83e \u202eturned').keep()

    shown = page(operator_client, session)

    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "<img src=x" not in shown
    assert not {"\x1b", "\x00", "\u202e"} & set(shown)


@pytest.mark.parametrize(
    "odd",
    [
        {"message": None},
        {"message": "words"},
        {"message": {"content": 7}},
        {"message": {"content": [None, {"type": ["x"]}, {"type": "image"}]}},
        {"timestamp": "0001-01-01T00:00:00"},
        {"timestamp": "yesterday"},
        {"timestamp": {"at": 1}},
        {"isCompactSummary": True, "message": ["x"]},
        {"type": ["user"]},
        {"parentUuid": {"a": 1}},
        {"parentUuid": "odd"},
    ],
    ids=str,
)
def test_it_shows_what_it_can_of_a_malformed_entry(operator_client, session, talk, odd):
    talk.ask("a", "before").ask("odd", "in the middle", **{"parent": "a"})
    talk.entries[-1].update(odd)
    talk.say("c", "after").keep()

    assert "after" in page(operator_client, session)


def test_it_shortens_very_long_text(operator_client, session, talk):
    talk.say("a", "long " * 20_000).keep()

    shown = page(operator_client, session)

    assert "more characters)" in shown
    assert len(shown) < 30_000


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"running": True}, transcripts.NOT_YET),
        ({"status": Session.Status.QUEUED, "session_id": ""}, transcripts.NOT_STARTED),
        ({"failed": True, "session_id": ""}, "the CLI never named one"),
        ({}, "No transcript of this conversation is archived."),
    ],
    ids=["running", "queued", "no id", "not archived"],
)
def test_it_explains_why_there_is_no_transcript(db, operator_client, facts, words):
    shown = page(operator_client, SessionFactory(**facts))

    assert words in shown.replace("&#x27;", "'")


def test_it_explains_a_transcript_without_a_message(operator_client, session, talk):
    append_entries(talk.key, [{"type": "mode"}])

    assert "no message is in it" in page(operator_client, session)


def test_it_explains_a_damaged_copy(operator_client, session, talk):
    talk.ask("a", "hello").keep()
    TranscriptChunk.objects.update(content=b"scratched")

    assert "The archived copy is damaged" in page(operator_client, session)


def test_an_anonymous_visitor_is_sent_to_the_login(session):
    response = Client().get(address(session))

    assert response.status_code == 302
    assert response.headers["Location"].startswith(reverse("login"))


def test_an_unknown_session_is_not_found(db, operator_client):
    assert operator_client.get(reverse("web:transcript", args=[999])).status_code == 404


def test_the_number_of_queries_does_not_grow_with_the_conversation(
    operator_client, session, talk, django_assert_max_num_queries
):
    long_talk(talk, 120)

    with django_assert_max_num_queries(10):
        page(operator_client, session)


def test_a_transcript_is_shown_redacted(operator_client, session, talk):
    talk.ask("u1", "Look.").say("a1", "The password=hunter22 works.").keep()

    shown = page(operator_client, session)

    assert "password=[redacted: password] works" in shown
    assert "hunter22" not in shown


def test_the_address_of_a_channel_is_redacted_in_a_transcript(operator_client, session, talk):
    ChannelFactory(address="ntfy://a-topic-is-a-password")
    talk.ask("u1", "It posts to ntfy://a-topic-is-a-password.").keep()

    shown = page(operator_client, session)

    assert "It posts to [redacted: notification address]" in shown
    assert "a-topic-is-a-password" not in shown
