from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as some

from escalation.agent.stream import Tokens
from escalation.sandbox.api_proxy import Meter
from tests.escalation.sandbox.api_proxy.played_api import STREAM, event, message_start

WHOLE = b"".join(STREAM)
USED = Tokens(input=11, output=22, cache_read=33, cache_creation=44)


def meter_of(*pieces: bytes, content_type="text/event-stream; charset=utf-8", encoding="") -> Meter:
    meter = Meter(model="asked", content_type=content_type, encoding=encoding)
    for piece in pieces:
        meter.feed(piece)
    meter.end()
    return meter


@given(cuts=some.lists(some.integers(0, len(WHOLE)), max_size=20))
def test_where_a_stream_is_cut_into_pieces_changes_nothing(cuts):
    places = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[start:end] for start, end in zip(places, places[1:], strict=False)]

    usage = meter_of(*pieces).usage

    assert (usage.tokens, usage.complete) == (USED, True)
    assert usage.model == "claude-haiku-4-5-20251001"


@given(piece=some.binary(max_size=300), kind=some.sampled_from(["text/event-stream", "", "x/y"]))
def test_nothing_that_a_server_sends_raises(piece, kind):
    for encoding in ("", "gzip", "br"):
        assert meter_of(piece, content_type=kind, encoding=encoding).usage.tokens == Tokens()


def test_lines_may_end_as_on_other_systems():
    usage = meter_of(WHOLE.replace(b"\n", b"\r\n")).usage

    assert (usage.tokens, usage.complete) == (USED, True)


def test_a_figure_that_a_delta_leaves_out_stays():
    delta = event("message_delta", usage={"output_tokens": 5, "input_tokens": None})

    assert meter_of(message_start(), delta).tokens == Tokens(11, 5, 33, 44)


def test_nothing_after_the_end_counts():
    late = event("message_delta", usage={"output_tokens": 5000})

    assert meter_of(WHOLE, late).tokens == USED


def test_a_stream_that_ends_with_an_error_is_not_complete():
    usage = meter_of(STREAM[0], event("error", error={"type": "overloaded_error"})).usage

    assert (usage.tokens, usage.complete) == (Tokens(11, 1, 33, 44), False)


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_packed_streams_are_unpacked_for_the_count(pack):
    packed = pack(WHOLE)

    usage = meter_of(packed[:10], packed[10:], encoding="gzip").usage

    assert (usage.tokens, usage.complete) == (USED, True)


def test_of_a_packing_that_is_not_known_nothing_is_known():
    usage = meter_of(WHOLE[::-1], encoding="br").usage

    assert (usage.model, usage.tokens, usage.complete) == ("asked", Tokens(), False)


def test_a_body_that_is_no_message_is_not_complete():
    usage = meter_of(b'{"type": "message", "model": "m"}', content_type="application/json").usage

    assert (usage.model, usage.complete) == ("m", False)
