"""Reading configuration files: the line of each key, and every mistake at once."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escalation.configuration.declaration import schema
from escalation.configuration.files import (
    lines_in,
    parse,
    read,
    resolved,
    unknown_watches,
)
from tests.tables import each_row

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "configuration-in-git.md"


def example() -> str:
    """Return the full example of the handbook."""
    [found] = re.findall(r"```toml claude-ops\.toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return found


LINES = [
    ("a = 1\nb = 2", ("b",), 2),
    ("# c\n\n[t]\na = 1", ("t", "a"), 4),
    ("[t]\n'x y'.z = 1", ("t", "x y", "z"), 2),
    ('a = """\nb = 1\n"""\nc = 1', ("c",), 4),
    ("a = '''\n[t]\n'''\n[u]\n", ("u",), 4),
    ("a = [\n1,\n2,\n]\nb = 1", ("b",), 5),
    ("a = { b = 1, c = 2 }", ("a", "c"), 1),
    ("[[m]]\na = 1\n[[m]]\na = 2", ("m", 1, "a"), 4),
    ("[[m]]\n[m.t]\na = 1\n[[m]]\n[m.t]\na = 2", ("m", 1, "t", "a"), 6),
    ("a = 1\r\nb = 2\r\n", ("b",), 2),
    ('a = "\u2028"\nb = 2', ("b",), 2),
    ("a = [ { b = 1 },\n{ b = 2 } ]", ("a", 1, "b"), 1),
]


@each_row("text, place, line", LINES)
def test_line_of_a_key(text, place, line):
    assert lines_in(text)[place] == line


def test_every_key_of_the_example_has_the_line_that_it_is_on():
    text = example()
    lines = text.split("\n")

    found = lines_in(text)

    assert len(found) > 50
    for place, number in found.items():
        name = next(part for part in reversed(place) if isinstance(part, str))
        assert name in lines[number - 1] or place[-1] != name or number < len(lines)
        assert any(str(part) in lines[number - 1] for part in place)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_read_or_reported(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("c") / "a.toml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")

    found = read(file, {})

    assert found.mistakes or found.files == (str(file),)


MISTAKES = [
    ('directry = "/srv"\ndirectory = "/srv"', 2, "did you mean directory"),
    ('directory = "/srv"\nzzz = 1', 3, "known keys"),
    ("directory = 1", 2, "string"),
    ("", 1, "missing"),
    ('directory = "/srv"\nevery = "1 hour"', 3, "30s"),
    ('directory = "/srv"\nevery = "1h"\ncron = "@daily"', 1, "one schedule"),
    ('directory = "/srv"\nautonomy = "saef"', 3, "'safe'"),
    ('directory = "/srv"\nautonomy = "safe"\nmax_tier = 3', 1, "autonomy stands for"),
    ('directory = "/srv"\nbudgets = { day = -1 }', 3, "dollars"),
    ('directory = "/srv"\nbudgets = { month = 1 }', 3, "known keys: day"),
    ('directory = "/srv"\n[watches.a.probes.p]\nservice = "x"', 3, "give one of http"),
    ('directory = "/srv"\n[watches.a.probes.p]\nservice = "x"\nhtp = "x"', 5, "did you mean http"),
    (
        'directory = "/srv"\n[[watches.a.maintenance]]\nstarts_at = 2026-01-01T00:00:00',
        3,
        "missing",
    ),
    ('directory = "[redacted: token]"', 2, "redacted"),
]


@each_row("text, line, words", MISTAKES)
def test_mistake_has_its_line(tmp_path_factory, text, line, words):
    file = tmp_path_factory.mktemp("c") / "a.toml"
    file.write_text(f"[watches.a]\n{text}")

    mistakes = read(file, {}).mistakes

    assert [one.line for one in mistakes if words in one.message] == [line], mistakes
    assert {one.file for one in mistakes} == {str(file)}


def test_all_mistakes_of_all_files_are_found_at_once(tmp_path):
    (tmp_path / "a.toml").write_text('[watches.shop]\ndirectory = "/srv"\nnope = 1\n')
    (tmp_path / "b.toml").write_text(
        '[watches.shop]\ndirectory = "/srv"\n[channels.phone]\naddress = "env:PHONE"\n'
        '[channels.mail]\naddress = "mailto://plain"\n[watch]\n'
    )
    (tmp_path / "c.toml").write_text("a = [1,\n2\n")
    (tmp_path / "d.toml").write_bytes(b"a = 1\nb = '\xff'\n")
    (tmp_path / "e.txt").write_text("this is not read")

    found = read(tmp_path, {})

    places = {(Path(one.file).name, one.line) for one in found.mistakes}
    assert places == {
        ("a.toml", 3),
        ("b.toml", 1),
        ("b.toml", 4),
        ("b.toml", 6),
        ("b.toml", 7),
        ("c.toml", 3),
        ("d.toml", 2),
    }


def test_unknown_watch_is_named_with_the_nearest(tmp_path):
    (tmp_path / "a.toml").write_text(
        '[sources.a]\nkind = "grafana"\nwatch = "shpo"\n'
        '[channels.b]\naddress = "env:B"\nwatches = [\n"nas",\n"nsa"]\n'
    )

    found = read(tmp_path, {"B": "json://127.0.0.1"})

    mistakes = unknown_watches(found, ["shop", "nas"])
    assert [(one.line, one.message.split("did you mean ")[1]) for one in mistakes] == [
        (3, "shop?"),
        (6, "nas?"),
    ]


@pytest.mark.parametrize("path", ["missing.toml", "."])
def test_missing_file_and_empty_directory_are_mistakes(tmp_path, path):
    assert len(read(tmp_path / path, {}).mistakes) == 1


def test_secrets_are_read_from_the_environment_and_from_files(tmp_path):
    (tmp_path / "secret").write_text("abc\n")
    (tmp_path / "empty").write_text("\n")
    environment = {"A": "value", "B": ""}

    assert resolved("env:A", environment) == ("value", "")
    assert resolved(f"file:{tmp_path}/secret", environment) == ("abc", "")
    for reference in ("env:B", "env:C", f"file:{tmp_path}/empty", "file:/dev/zero", "file:/nope"):
        value, problem = resolved(reference, environment)
        assert (value, bool(problem)) == ("", True), reference


def test_example_agrees_with_the_schema_and_with_the_reader(tmp_path):
    text = example()
    (tmp_path / "a.toml").write_text(text)
    content = json.loads(json.dumps(parse(text), default=lambda value: _plain(value)))

    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(content, schema(), jsonschema.Draft202012Validator)
    wrong = {**content, "watches": {"shop": {**content["watches"]["shop"], "evry": "1h"}}}

    assert not jsonschema.Draft202012Validator(schema()).is_valid(wrong)
    secrets = {name: "x" * 32 for name in re.findall(r"env:([A-Z_]+)", text)}
    mistakes = [
        one for one in read(tmp_path, secrets).mistakes if "/run/secrets" not in one.message
    ]
    assert mistakes == []


def _plain(value):
    try:
        return float(value)
    except TypeError:
        return value.isoformat()


def test_schema_knows_every_table():
    names = set(schema()["$defs"])

    assert {"WatchDeclaration", "ProbeDeclaration", "RemedyDeclaration"} <= names
    assert textwrap.shorten(schema()["$schema"], 60).startswith("https://json-schema.org")
