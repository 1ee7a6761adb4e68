from __future__ import annotations

from typing import Any

import pytest

from escalation.agent.event_text import EventLine, describe_event, summary_line
from tests.tables import each_row


def assistant(*blocks: Any, **extra: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"content": list(blocks)}, **extra}


def tool_use(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": given}


def tool_result(content: Any, **extra: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "content": content, **extra}
    return {"type": "user", "message": {"content": [block]}}


def only_line(source: str, kind: str, payload: Any) -> EventLine:
    (line,) = describe_event(source, kind, payload)
    return line


def test_it_shows_what_claude_said():
    line = only_line("stream", "assistant", assistant({"type": "text", "text": "All quiet."}))

    assert line == EventLine("said", "Claude", "All quiet.")


def test_it_shows_thinking_as_thinking():
    line = only_line("stream", "assistant", assistant({"type": "thinking", "thinking": "Hm."}))

    assert line == EventLine("thinking", "Thinking", "Hm.")


def test_it_gives_one_line_for_each_block():
    payload = assistant({"type": "text", "text": "Look."}, tool_use("Bash", command="ls"))

    assert [line.kind for line in describe_event("stream", "assistant", payload)] == [
        "said",
        "tool",
    ]


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (
            {"text": "no answer in 15 min", "from": "running", "to": "timed_out"},
            "running → timed out\nno answer in 15 min",
        ),
        ({"text": "", "from": "queued", "to": "running"}, "queued → running"),
        ({"text": "created", "to": "queued"}, "queued\ncreated"),
        ({"text": "odd", "from": {}, "to": [1]}, "{} → [1]\nodd"),
    ],
)
def test_it_shows_a_change_of_status_with_its_reason(payload, text):
    assert only_line("supervisor", "status", payload) == EventLine(
        "note", "Claude Ops · status", text
    )


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (tool_use("Bash", command="docker ps", description="list"), "docker ps"),
        (tool_use("Read", file_path="/etc/hosts"), "/etc/hosts"),
        (tool_use("Grep", pattern="oom", path="/var/log"), "oom\n/var/log"),
        (tool_use("Unheard", depth=2), '{"depth": 2}'),
    ],
)
def test_it_shows_the_main_argument_of_a_tool_call(block, text):
    line = only_line("stream", "assistant", assistant(block))

    assert (line.kind, line.title, line.text) == ("tool", block["name"], text)


def test_it_marks_events_of_a_subagent():
    payload = assistant(tool_use("Bash", command="ls"), parent_tool_use_id="toolu_1")

    assert only_line("stream", "assistant", payload).title == "Bash (subagent)"


def test_it_shows_the_summary_and_the_escalation_of_a_report():
    report = tool_use(
        "StructuredOutput", summary="web is down", escalation={"needed": True, "reason": "restart"}
    )

    line = only_line("stream", "assistant", assistant(report))

    assert line == EventLine("report", "Report", "web is down\nEscalation: restart")


def test_it_shows_a_tool_result_given_as_text():
    assert only_line("stream", "user", tool_result("up 3 days")).text == "up 3 days"


def test_it_shows_a_tool_result_given_as_blocks():
    content = [{"type": "text", "text": "one"}, {"type": "image"}, "stray"]

    assert only_line("stream", "user", tool_result(content)).text == "one\nimage"


def test_it_distinguishes_a_tool_error_from_a_result():
    assert only_line("stream", "user", tool_result("no such file", is_error=True)).kind == (
        "tool_error"
    )


def test_it_distinguishes_a_denial_from_a_tool_error():
    text = "Permission to use Bash with command helm has been denied."

    assert only_line("stream", "user", tool_result(text, is_error=True)).kind == "denied"


@pytest.mark.parametrize(
    "text",
    [
        "<tool_use_error>Error: No such tool available: AskUserQuestion</tool_use_error>",
        "Permission to use AskUserQuestion has been denied.",
    ],
)
def test_it_explains_a_question_that_nobody_could_answer(text):
    line = only_line("stream", "user", tool_result(text, is_error=True))

    assert (line.kind, line.title) == ("denied", "Denied · AskUserQuestion")
    assert line.text.startswith("Nobody answers questions during a run")
    assert line.text.endswith(text)


def test_it_shows_an_unavailable_tool_as_denied():
    text = "<tool_use_error>Error: No such tool available: Write</tool_use_error>"

    line = only_line("stream", "user", tool_result(text, is_error=True))

    assert line == EventLine("denied", "Denied · Write", text)


def test_an_error_that_quotes_a_denial_is_still_an_error():
    text = "grep: log: No such tool available: Write"

    assert only_line("stream", "user", tool_result(text, is_error=True)).kind == "tool_error"


def test_it_shows_a_denied_permission():
    payload = {"type": "system", "tool_name": "Bash", "message": "not for this tier"}

    line = only_line("stream", "system/permission_denied", payload)

    assert line == EventLine("denied", "Denied · Bash", "not for this tier")


def test_it_shows_the_start_of_the_conversation():
    payload = {"session_id": "abc", "model": "haiku", "tools": ["Bash", "Read"], "cwd": "/srv"}

    assert only_line("stream", "system/init", payload).text == "haiku · 2 tools · /srv · abc"


def test_it_warns_about_an_api_retry():
    payload = {"attempt": 2, "max_retries": 4, "error_status": 529, "error": "overloaded"}

    line = only_line("stream", "system/api_retry", payload)

    assert line == EventLine("warning", "API retry", "attempt 2 of 4 · HTTP 529 · overloaded")


def test_it_shows_a_good_result_with_its_figures():
    payload = {"subtype": "success", "num_turns": 3, "total_cost_usd": 0.0328, "result": "done"}

    line = only_line("stream", "result/success", payload)

    assert (line.kind, line.text) == ("result", "3 turns · the CLI counts $0.03\ndone")


def test_it_does_not_repeat_the_report_at_the_end():
    report = {"summary": "all is well"}
    payload = {"subtype": "success", "result": '{"summary":…}', "structured_output": report}

    assert only_line("stream", "result/success", payload).text == ""


def test_it_shows_a_success_with_is_error_as_an_error():
    payload = {"subtype": "success", "is_error": True, "result": "API Error: 529"}

    assert only_line("stream", "result/success", payload).kind == "error"


@pytest.mark.parametrize(
    ("level", "kind"), [("info", "note"), ("warning", "warning"), ("error", "error"), (7, "note")]
)
def test_it_shows_notes_of_the_supervisor_by_their_level(level, kind):
    line = only_line("supervisor", "decision", {"text": "Escalated.", "level": level})

    assert line == EventLine(kind, "Claude Ops · decision", "Escalated.")


def test_it_shows_stderr_as_a_warning_and_unknown_output_as_noise():
    lines = [only_line(source, "", {"text": "hm"}) for source in ("stderr", "noise")]

    assert [line.kind for line in lines] == ["warning", "noise"]


def test_it_leaves_out_partial_messages():
    assert describe_event("stream", "stream_event", {"event": {}}) == ()


def test_it_names_lines_of_unknown_type():
    assert only_line("stream", "system/brand_new", {"a": 1}).title == "system/brand_new"


ODD_VALUES = [None, 0, 1.5, True, "text", [], [None, 3, "x"], {}, {"type": []}, {"message": 3}]


@each_row("source", ["stream", "noise", "stderr", "supervisor", "unheard"])
@each_row("value", ODD_VALUES)
def test_it_never_fails_on_a_malformed_payload(source, value):
    for kind in ("", "system/init", "system/api_retry", "assistant", "user", "result/success"):
        assert isinstance(describe_event(source, kind, value), tuple)


@each_row("value", ODD_VALUES)
def test_it_never_fails_on_malformed_fields(value):
    names = "message content tools model subtype num_turns total_cost_usd result attempt text"
    payload = {name: value for name in names.split()}
    payload["message"] = {"content": [value, {"type": "tool_use", "name": value, "input": value}]}

    for kind in ("system/init", "system/api_retry", "assistant", "user", "result"):
        assert isinstance(describe_event("stream", kind, payload), tuple)


@each_row("cost", [float("nan"), float("inf"), 10**400, True, "0.5"])
def test_it_leaves_out_an_invalid_cost(cost):
    line = only_line("stream", "result", {"subtype": "success", "total_cost_usd": cost})

    assert "$" not in line.text


def test_it_shortens_a_long_text_and_says_how_much_is_missing():
    line = only_line("noise", "", {"text": "x" * 5_234})

    assert line.text.endswith("x… (1,234 more characters)")


def test_it_replaces_control_characters_by_marks():
    hostile = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \u202egnp.exe\ud800 bell\x07 a\r\nb"

    assert only_line("noise", "", {"text": hostile}).text == (
        "red ␛]0;title␇ ‹U+202E›gnp.exe\ufffd bell␇ a\nb"
    )


def test_every_text_can_be_encoded():
    line = only_line("stream", "assistant", assistant(tool_use("X\ud800", key="\udfff")))

    assert (line.title + line.text).encode()


def test_the_summary_is_one_short_line():
    line = EventLine("tool", "Bash", "one\n\ttwo \x1b[1mthree\x1b[0m " + "x" * 300)

    summary = summary_line(line)

    assert summary.startswith("Bash: one two three xxx")
    assert len(summary) == 160


def test_the_summary_of_an_empty_text_is_its_title():
    assert summary_line(EventLine("noise", "system/status", "")) == "system/status"
