"""Bytes to lines, and lines to values, for any output of a program."""

from __future__ import annotations

import json

import pytest

from escalation.agent.stream import LineSplitter, parse_line, storable
from tests.tables import each_row

TEXT = b'{"a":1}\n\n{"b":2}\r\n   \nlast \xc3\xa9 line'
LINES = [b'{"a":1}', b'{"b":2}\r', "last é line".encode()]


def split(*chunks: bytes, limit: int = 1 << 20) -> list[bytes]:
    splitter = LineSplitter(limit)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines + splitter.rest()


@each_row("position", range(len(TEXT) + 1))
def test_a_chunk_may_end_anywhere(position):
    assert split(TEXT[:position], TEXT[position:]) == LINES


def test_chunks_may_be_single_bytes():
    assert split(*(bytes([byte]) for byte in TEXT)) == LINES


@pytest.mark.parametrize("text", [b"", b"\n", b"\r\n\n  \n", b"\t"])
def test_empty_lines_are_left_out(text):
    assert split(text) == []


def test_an_incomplete_line_is_passed_on_at_the_end():
    splitter = LineSplitter()

    assert splitter.feed(b'{"half":') == []
    assert splitter.rest() == [b'{"half":']
    assert splitter.rest() == []


def test_a_line_of_5_megabytes_stays_whole():
    line = b"x" * 5_000_000
    chunks = [line[start : start + 65_536] for start in range(0, len(line), 65_536)]

    assert split(*chunks, b"\nnext\n", limit=32 << 20) == [line, b"next"]


def test_a_line_over_the_limit_is_shortened_and_the_next_is_whole():
    assert split(b"a" * 7, b"b" * 7, b"\nnext\n", limit=10) == [b"a" * 7 + b"b" * 3, b"next"]


def test_an_object_is_a_line_of_the_stream():
    line = parse_line(b'{"type": "assistant", "n": 1}')

    assert (line.kind, line.is_noise) == ("assistant", False)
    assert line.payload == {"type": "assistant", "n": 1}


def test_the_kind_names_type_and_subtype():
    assert parse_line(b'{"subtype": "init", "type": "system"}').kind == "system/init"


@each_row(
    "line",
    [
        b"garbage",
        b'{"type": "assis',
        b"[1, 2]",
        b'"text"',
        b"3",
        b"null",
        b"true",
        b"NaN",
        b'{"cost": NaN}',
        b'{"cost": Infinity}',
        b'{"cost": -Infinity}',
        b"\xff\xfe\x00garbage",
        b"\x00",
        b"{" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"n": ' + b"9" * 10_000 + b"}",
    ],
    ids=lambda line: repr(line[:12]),
)
def test_anything_else_is_kept_as_noise(line):
    parsed = parse_line(line)

    assert (parsed.is_noise, parsed.kind) == (True, "")
    assert isinstance(parsed.payload["text"], str)


@each_row("kind", [1, None, True, [], {}, ["init"], {"a": 1}, 1.5])
def test_a_type_that_is_not_text_is_no_kind(kind):
    parsed = parse_line(json.dumps({"type": kind, "subtype": kind}).encode())

    assert (parsed.kind, parsed.is_noise) == ("", False)


def test_a_kind_fits_its_column():
    assert len(parse_line(json.dumps({"type": "x" * 5000}).encode()).kind) == 100


NOT_STORABLE = [
    rb"\u0000",
    rb"\ud800",
    rb"\uDFFF",
    rb"\udc00\ud800",
    rb"a\u0000b\ud83dc",
]


@each_row("escape", NOT_STORABLE)
def test_characters_that_cannot_be_stored_are_replaced_in_values_and_keys(escape):
    payload = parse_line(b'{"%b": ["%b", {"deep": "%b"}]}' % (escape, escape, escape)).payload

    written = json.dumps(payload, ensure_ascii=False)
    assert written.encode("utf-8")
    assert "\\u0000" not in written


@each_row("escape", NOT_STORABLE)
def test_characters_that_cannot_be_stored_are_replaced_in_the_kind(escape):
    kind = parse_line(b'{"type": "%b", "subtype": "%b"}' % (escape, escape)).kind

    assert kind.encode("utf-8")
    assert "\x00" not in kind


def test_a_pair_of_surrogates_is_one_character():
    assert parse_line(rb'{"text": "\ud83d\ude80 \u00e9"}').payload == {"text": "🚀 é"}


def test_a_nul_in_noise_is_replaced():
    assert parse_line(b"a\x00b").payload == {"text": "a\ufffdb"}


@each_row("depth", [100, 400, 600, 800, 900])
@each_row("escape", [b"plain", rb"\u0000"])
def test_deep_nesting_never_raises(depth, escape):
    line = b'{"text": "%b", "deep": %b%b}' % (escape, b"[" * depth, b"]" * depth)

    assert isinstance(parse_line(line).payload, dict)


@each_row("value", [None, True, 3, 1.5, "plain", ["a", 1], {"a": {"b": None}}])
def test_text_that_can_be_stored_is_unchanged(value):
    assert storable(value) == value


def test_a_byte_order_mark_is_kept():
    assert storable("\ufeffx") == "\ufeffx"
