"""Broken streams: no crash, no valid line lost, bounded memory."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from escalation.agent.stream import (
    MAX_LINE_BYTES,
    LineSplitter,
    StreamFacts,
    StreamLine,
    parse_line,
)

RECORDED = (Path(__file__).parent / "recorded_stream.jsonl").read_bytes().splitlines()
WHOLE = [json.loads(line) for line in RECORDED]
CASES = 10_000
# Bytes with a meaning for JSON, for lines or for UTF-8, besides any other.
NASTY = b'\x00"\\{}[]:,\n\r\xff\xc3\xed\xa0\x80\x1e0-eN'
MEGABYTE = 1024 * 1024

quietly = settings(database=None, deadline=None, max_examples=300)


def read(chunks: Iterator[bytes] | list[bytes]) -> tuple[list[StreamLine], StreamFacts]:
    """As a run is read: bytes to lines, lines to facts."""
    splitter, facts, lines = LineSplitter(), StreamFacts(), []
    for chunk in chunks:
        for line in splitter.feed(chunk):
            lines.append(observed(line, facts))
    lines.extend(observed(line, facts) for line in splitter.rest())
    return lines, facts


def observed(line: bytes, facts: StreamFacts) -> StreamLine:
    parsed = parse_line(line)
    if not parsed.is_noise:
        facts.observe(parsed.payload)
    return parsed


def ask_everything(facts: StreamFacts) -> None:
    """What the runner asks of the facts at the end must have an answer, whatever was read."""
    for name in (
        *("result", "turns", "result_text", "structured_output", "reported_cost_usd"),
        *("own_share", "streamed_tokens", "own_tokens", "reported_tokens"),
        *("reported_tokens", "context_window"),
    ):
        getattr(facts, name)


def cut(stream: bytes, dice: random.Random) -> Iterator[bytes]:
    """In pieces of any size, as a pipe gives them."""
    while stream:
        size = dice.choice((1, 7, 100, 4096, 65536))
        yield stream[:size]
        stream = stream[size:]


def mutated(line: bytes, dice: random.Random) -> bytes:
    """A few bytes changed, lost, doubled or put in; never a whole line that was not there."""
    broken = bytearray(line)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(broken) or 1)
        match dice.randrange(6):
            case 0:
                broken[at : at + 1] = bytes([dice.choice(NASTY)])
            case 1:
                broken[at : at + 1] = bytes([dice.randrange(256)])
            case 2:
                del broken[at : at + dice.randint(1, 50)]
            case 3:
                broken[at:at] = broken[at : at + dice.randint(1, 50)]
            case 4:
                broken[at:at] = bytes(dice.choice(NASTY) for _ in range(dice.randint(1, 5)))
            case 5:
                del broken[at:]
    return bytes(broken)


def test_ten_thousand_mutated_streams_lose_no_valid_line():
    dice = random.Random(20260301)  # noqa: S311 (the same cases every time)

    for case in range(CASES):
        chosen = sorted(dice.sample(range(len(RECORDED)), 3))
        victim = dice.choice(chosen)
        lines = [mutated(RECORDED[n], dice) if n == victim else RECORDED[n] for n in chosen]

        parsed, facts = read(cut(b"\n".join(lines) + b"\n" * dice.randrange(2), dice))

        seen = [line.payload for line in parsed if not line.is_noise]
        assert all(WHOLE[n] in seen for n in chosen if n != victim), (case, lines)
        ask_everything(facts)


def test_the_recorded_streams_are_read_whole():
    parsed, facts = read([b"\n".join(RECORDED)])

    assert [line.payload for line in parsed] == WHOLE
    assert not any(line.is_noise for line in parsed)
    assert facts.open_tools == set()
    assert facts.result


def test_every_way_to_cut_a_stream_gives_the_same_lines():
    stream = b"\n".join(RECORDED[:6])
    whole = read([stream])[0]

    for size in (1, 2, 3, 1000, 4096):
        assert read([stream[n : n + size] for n in range(0, len(stream), size)])[0] == whole


anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=20),
        st.sampled_from(["assistant", "user", "result", "system", "init", "tool_use", "success"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
KEYS = (
    *("type", "subtype", "session_id", "message", "usage", "modelUsage", "total_cost_usd"),
    *("model_usage_since_last_result", "num_turns", "result", "is_error", "parent_tool_use_id"),
)
odd_messages = st.fixed_dictionaries(
    {"type": st.sampled_from(["system", "assistant", "user", "result"])},
    optional={
        "subtype": st.sampled_from(["init", "compact_boundary", "success"]) | anything,
        "message": anything
        | st.fixed_dictionaries(
            {},
            optional={"content": anything, "usage": anything, "id": anything, "model": anything},
        ),
        **{key: anything for key in KEYS[2:] if key != "message"},
    },
)


@given(st.lists(odd_messages, max_size=6))
@quietly
def test_messages_with_malformed_fields_never_raise(messages):
    stream = b"\n".join(json.dumps(message).encode() for message in messages)

    _lines, facts = read([stream])

    ask_everything(facts)


@given(st.lists(st.binary(max_size=200), max_size=8))
@quietly
def test_any_bytes_become_lines(chunks):
    lines, facts = read(chunks)

    expected = [line for line in b"".join(chunks).split(b"\n") if line.strip()]
    assert len(lines) == len(expected)
    ask_everything(facts)


@given(st.lists(st.binary(max_size=60).filter(lambda noise: b"\n" not in noise), max_size=5))
@quietly
def test_noise_between_lines_loses_no_line(noises):
    stream = b"\n".join(part for noise in noises for part in (noise, RECORDED[0]))

    parsed = [line.payload for line in read([stream])[0]]

    assert parsed.count(WHOLE[0]) == len(noises)


@given(st.integers(1, 100), st.lists(st.binary(max_size=50), max_size=10))
@quietly
def test_no_line_is_longer_than_the_limit(limit, chunks):
    splitter = LineSplitter(limit)

    lines = [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.rest()

    assert all(len(line) <= limit for line in lines)


def long_stream(megabytes: int) -> Iterator[bytes]:
    """Tool outputs of half a megabyte, one after another, in pieces as a pipe gives them."""
    text = "x" * (MEGABYTE // 2)
    for number in range(megabytes * 2):
        call = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text}
        message = {"role": "user", "content": [call]}
        line = json.dumps({"type": "user", "uuid": str(number), "message": message}).encode()
        yield line[:100_000]
        yield line[100_000:] + b"\n"


def line_without_end(megabytes: int) -> Iterator[bytes]:
    piece = b"y" * MEGABYTE
    for _ in range(megabytes):
        yield piece


def peak_while_reading(chunks: Iterator[bytes]) -> tuple[int, int, StreamFacts]:
    """The most memory in use at once, in megabytes, and how many lines there were."""
    splitter, facts, count = LineSplitter(), StreamFacts(), 0
    tracemalloc.start()
    try:
        for chunk in chunks:
            for line in splitter.feed(chunk):
                observed(line, facts)
                count += 1
        for line in splitter.rest():
            observed(line, facts)
            count += 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return peak // MEGABYTE, count, facts


def test_200_megabytes_of_tool_output_are_read_in_little_memory():
    peak, count, facts = peak_while_reading(long_stream(200))

    assert (count, facts.messages) == (400, 400)
    assert peak < 20


def test_200_megabytes_without_a_line_end_are_read_in_bounded_memory():
    splitter = LineSplitter()
    tracemalloc.start()
    try:
        assert [line for chunk in line_without_end(200) for line in splitter.feed(chunk)] == []
        [line] = splitter.rest()
        peak = tracemalloc.get_traced_memory()[1] // MEGABYTE
    finally:
        tracemalloc.stop()

    assert len(line) == MAX_LINE_BYTES
    assert peak < 120


def test_the_longest_line_is_parsed_in_bounded_memory():
    peak, count, _facts = peak_while_reading(line_without_end(200))

    assert count == 1
    assert peak < 300


def test_single_bytes_are_read_in_bounded_memory():
    splitter = LineSplitter(limit=1000)
    tracemalloc.start()
    try:
        for _ in range(200_000):
            splitter.feed(b"z")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(splitter.rest()[0]) == 1000
    assert peak < MEGABYTE
