"""`bench live`: a real web server, real streams, and the output."""

from __future__ import annotations

import json
from io import StringIO

from django.core.management import call_command

from escalation.drills import scratch
from tests.devtools.benchmarks import live
from tests.devtools.benchmarks.live import Live, Viewer

FOUND = Live(
    viewers=2,
    lines=3,
    missed=0,
    doubled=0,
    cpu_percent=4.25,
    threads=3,
    delays_ms=[50.0, 100.0, 150.0],
)


def said(monkeypatch, *arguments: str) -> str:
    monkeypatch.setenv(scratch.MARK, "1")
    monkeypatch.setattr(live, "measure", lambda viewers, seconds: FOUND)
    monkeypatch.setattr(
        "tests.devtools.management.commands.bench.call_command", lambda *a, **o: None
    )
    output = StringIO()
    call_command("bench", "live", *arguments, stdout=output)
    return output.getvalue()


def test_figures_are_printed_with_their_targets(monkeypatch):
    text = said(monkeypatch)

    assert "4.2 % of a core (aim: under 10 %)" in text
    assert "median 100 ms" in text
    assert "0 missed, 0 doubled" in text


def test_the_result_is_converted_to_json(monkeypatch):
    figures = json.loads(said(monkeypatch, "--json"))

    assert (figures["viewers"], figures["p50_ms"]) == (2, 100.0)


def test_missed_and_repeated_lines_of_a_viewer_are_counted():
    written = {1: 10.0, 2: 11.0}
    viewers = [Viewer("a"), Viewer("b")]
    viewers[0].seen = [(1, 10.1), (1, 10.2)]
    viewers[1].seen = [(1, 10.1), (2, 11.1)]

    found = live._figures(viewers, written, cpu_percent=1, threads=1)

    assert (found.missed, found.doubled, found.lines) == (1, 1, 2)
    assert round(found.p50_ms) == 100
