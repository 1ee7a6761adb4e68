"""Typed reading of the environment: every error is collected under its variable."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest

from claudeops.env import (
    OLD_NAMES,
    Environment,
    read_dotenv,
    split_outside_parentheses,
    tiers_from,
    unknown_names,
)
from tests.tables import each_row


def problems_of(environment: Environment) -> list[str]:
    return [problem.name for problem in environment.problems]


@pytest.mark.parametrize("variables", [{}, {"NAME": ""}, {"NAME": "   "}])
def test_a_missing_variable_has_its_default(variables):
    environment = Environment(variables)

    assert environment.text("NAME", "default") == "default"
    assert environment.flag("NAME", True) is True
    assert environment.integer("NAME", 7, minimum=1) == 7
    assert environment.amount("NAME", Decimal(2)) == 2
    assert environment.seconds("NAME", 60) == 60
    assert environment.names("NAME", ("a",)) == ("a",)
    assert environment.path("NAME", Path("/default")) == Path("/default")
    assert environment.problems == []


def test_text_is_stripped():
    assert Environment({"NAME": "  value "}).text("NAME") == "value"


@each_row(
    ("text", "value"),
    [("1", True), ("TRUE", True), ("Yes", True), ("on", True), ("0", False), ("off", False)]
    + [("no", False), ("False", False)],
)
def test_a_flag_accepts_common_words(text, value):
    environment = Environment({"NAME": text})

    assert environment.flag("NAME", not value) is value
    assert environment.problems == []


@pytest.mark.parametrize("text", ["maybe", "2", "ja", "-1"])
def test_a_flag_refuses_other_words(text):
    environment = Environment({"NAME": text})

    assert environment.flag("NAME", True) is True
    assert environment.problems[0].message == f"NAME is {text!r}, but must be yes or no."


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("3", 3), (" 2 ", 2)])
def test_an_integer_within_its_limits_is_accepted(text, value):
    assert Environment({"NAME": text}).integer("NAME", 9, minimum=1, maximum=3) == value


@each_row("text", ["0", "4", "-1", "1.5", "abc", "1e1", "0x1"])
def test_an_integer_outside_its_limits_is_a_problem(text):
    environment = Environment({"NAME": text})

    assert environment.integer("NAME", 2, minimum=1, maximum=3) == 2
    assert "a whole number, at least 1 and at most 3" in environment.problems[0].message


@pytest.mark.parametrize(("text", "value"), [("2.50", "2.50"), ("1e-2", "0.01"), ("7", "7")])
def test_an_amount_is_exact(text, value):
    assert Environment({"NAME": text}).amount("NAME", Decimal(1)) == Decimal(value)


@each_row("text", ["0", "-1", "NaN", "Infinity", "$5", "1,5", "abc"])
def test_an_invalid_amount_is_a_problem(text):
    environment = Environment({"NAME": text})

    assert environment.amount("NAME", Decimal(1)) == 1
    assert "dollars" in environment.problems[0].message


@pytest.mark.parametrize(("text", "value"), [("0.70", "0.7"), ("1", "1"), ("1e-2", "0.01")])
def test_a_share_is_over_0_and_up_to_1(text, value):
    assert Environment({"NAME": text}).share("NAME", Decimal("0.80")) == Decimal(value)


@each_row("text", ["abc", "0", "1.5", "-0.5", "80%", "NaN", "Infinity", "0,8"])
def test_an_invalid_share_is_a_problem(text):
    environment = Environment({"NAME": text})

    assert environment.share("NAME", Decimal("0.80")) == Decimal("0.80")
    assert "a number over 0 and up to 1, like 0.80" in environment.problems[0].message


@each_row(
    ("text", "value"),
    [
        ("90", 90),
        ("90s", 90),
        ("15m", 900),
        ("15M", 900),
        ("2h", 7200),
        ("1d", 86400),
        ("3 h", 10800),
    ],
)
def test_a_time_may_have_a_unit(text, value):
    assert Environment({"NAME": text}).seconds("NAME", 1) == value


@each_row("text", ["0", "-5", "m", "1.5h", "2w", "abc", "h2"])
def test_an_invalid_time_is_a_problem(text):
    environment = Environment({"NAME": text})

    assert environment.seconds("NAME", 60) == 60
    assert "a time like 90, 90s, 15m or 2h" in environment.problems[0].message


def test_a_time_may_have_to_be_a_multiple():
    environment = Environment({"GOOD": "2m", "BAD": "90"})

    assert environment.seconds("GOOD", 60, multiple_of=60) == 120
    assert environment.seconds("BAD", 60, multiple_of=60) == 60
    assert "a multiple of 60 seconds" in environment.problems[0].message


@each_row(
    ("text", "entries"),
    [
        ("a,b", ["a", "b"]),
        (" a , ,b, ", ["a", "b"]),
        (
            "Read,Bash(git log:*, git diff:*),Write",
            ["Read", "Bash(git log:*, git diff:*)", "Write"],
        ),
        ("Bash(a(b,c),d),e", ["Bash(a(b,c),d)", "e"]),
        ("a),b", ["a)", "b"]),
        ("", []),
        (",,", []),
    ],
)
def test_a_list_is_split_outside_parentheses(text, entries):
    assert split_outside_parentheses(text) == entries


def test_a_path_is_made_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/operator")
    environment = Environment({"RELATIVE": "state", "HOMELY": "~/state"})

    assert environment.path("RELATIVE", Path("/x")) == tmp_path / "state"
    assert environment.path("HOMELY", Path("/x")) == Path("/home/operator/state")


def test_every_problem_is_collected():
    environment = Environment({"ONE": "x", "TWO": "y", "THREE": "3"})

    for name in ("ONE", "TWO", "THREE"):
        environment.integer(name, 1, minimum=1)

    assert problems_of(environment) == ["ONE", "TWO"]


@pytest.fixture
def dotenv(monkeypatch, tmp_path):
    """Read a file into an environment that holds these variables, and give back the outcome."""

    def read(content: str, **already: str) -> dict[str, str]:
        (tmp_path / ".env").write_text(content)
        monkeypatch.setattr(os, "environ", dict(already))
        read_dotenv(tmp_path / ".env")
        return dict(os.environ)

    return read


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("NAME=value", "value"),
        ("export NAME=value", "value"),
        (" NAME = value ", "value"),
        ("NAME='a value'", "a value"),
        ('NAME="a # value"', "a # value"),
        ("NAME=value # comment", "value"),
        ('NAME="value" # comment', "value"),
        ("NAME=a=b", "a=b"),
        ("NAME=a#b", "a#b"),
        ("NAME=a${b}$c", "a${b}$c"),
        ("NAME=", ""),
    ],
)
def test_a_line_of_the_file_gives_a_value(dotenv, line, value):
    assert dotenv(line)["NAME"] == value


@pytest.mark.parametrize("line", ["", "# NAME=value", "  # NAME=value", "NAME", "   ", "NAME='"])
def test_comments_and_empty_lines_have_no_value(dotenv, line):
    assert "NAME" not in dotenv(line)


def test_an_invalid_line_is_reported(dotenv, caplog):
    dotenv("GOOD=1\nNAME='\n")

    assert "line 2" in caplog.text


def test_the_environment_takes_precedence_over_the_file(dotenv):
    assert dotenv("NAME=file\nOTHER=file", NAME="environment") == {
        "NAME": "environment",
        "OTHER": "file",
    }


def test_an_empty_value_in_the_environment_takes_precedence_too(dotenv):
    assert dotenv("NAME=file", NAME="") == {"NAME": ""}


def test_a_missing_file_is_no_problem(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "environ", {})

    read_dotenv(tmp_path / "nowhere")

    assert os.environ == {}


def test_a_database_is_read_from_its_address():
    environment = Environment({"NAME": "postgresql://ops@db.local/record"})

    assert environment.database("NAME", {})["HOST"] == "db.local"


def test_without_an_address_the_database_is_the_default():
    assert Environment({"NAME": " "}).database("NAME", {"ENGINE": "x"}) == {"ENGINE": "x"}


def test_an_invalid_database_address_is_a_problem_without_its_password():
    environment = Environment({"NAME": "mysql://ops:secret@db.local/record"})

    assert environment.database("NAME", {"ENGINE": "x"}) == {"ENGINE": "x"}
    (problem,) = environment.problems
    assert problem.message == "NAME must begin with sqlite:/// or postgresql://."


@pytest.mark.parametrize(("text", "level"), [("debug", 10), ("INFO", 20), ("Error", 40)])
def test_a_log_level_is_a_word(text, level):
    assert Environment({"NAME": text}).log_level("NAME", 30) == level


@pytest.mark.parametrize("text", ["loud", "15", "basicConfig", "CRITICAL"])
def test_an_invalid_log_level_is_a_problem(text):
    environment = Environment({"NAME": text})

    assert environment.log_level("NAME", 30) == 30
    assert "one of DEBUG, INFO, WARNING, ERROR" in environment.problems[0].message


@pytest.mark.parametrize("text", ["http://ping.local", "https://ping.example.org/a/b?c=1"])
def test_an_address_begins_with_http(text):
    assert Environment({"NAME": text}).address("NAME") == text


@pytest.mark.parametrize("text", ["ping.example.org", "ftp://x", "http://", "https:///x"])
def test_an_invalid_address_is_a_problem(text):
    environment = Environment({"NAME": text})

    assert environment.address("NAME") == ""
    assert problems_of(environment) == ["NAME"]


def test_origins_are_a_list():
    environment = Environment({"NAME": "https://a.example, http://b.example:8000"})

    assert environment.origins("NAME") == ("https://a.example", "http://b.example:8000")


@pytest.mark.parametrize("text", ["a.example", "https://a.example,b", "https://a.example/path"])
def test_one_invalid_origin_is_a_problem(text):
    environment = Environment({"NAME": text})

    assert environment.origins("NAME") == ()
    assert "https://ops.example.org" in environment.problems[0].message


def test_every_variable_has_its_value_and_source():
    env = Environment(
        {"CLAUDEOPS_PORT": "8123", "CLAUDEOPS_SANDBOX": "on", "CLAUDEOPS_WORKERS": "x"},
        file="/srv/.env",
        in_file={"CLAUDEOPS_SANDBOX"},
    )
    env.integer("CLAUDEOPS_PORT", 8000, minimum=1)
    env.choice("CLAUDEOPS_SANDBOX", "auto", ("auto", "on"))
    env.integer("CLAUDEOPS_WORKERS", 2, minimum=1)
    env.text("CLAUDEOPS_HOST", "127.0.0.1")

    assert [(known.name, known.value, known.source) for known in env.variables] == [
        ("CLAUDEOPS_PORT", 8123, "environment"),
        ("CLAUDEOPS_SANDBOX", "on", "/srv/.env"),
        ("CLAUDEOPS_WORKERS", 2, "environment"),
        ("CLAUDEOPS_HOST", "127.0.0.1", "default"),
    ]


def test_a_misspelt_name_has_a_suggestion():
    known = {"CLAUDEOPS_PORT", "CLAUDEOPS_SANDBOX", "CLAUDEOPS_TIER1_MODEL"}
    given = ["CLAUDEOPS_PROT", "CLAUDEOPS_SANDBOXES", "CLAUDEOPS_PORT", "CLAUDEOPS_XYZ", "PATH"]

    assert unknown_names(given, known) == {
        "CLAUDEOPS_PROT": "CLAUDEOPS_PORT",
        "CLAUDEOPS_SANDBOXES": "CLAUDEOPS_SANDBOX",
        "CLAUDEOPS_XYZ": "",
    }


def test_an_old_name_is_read_as_its_new_one():
    environment = Environment(dict.fromkeys(OLD_NAMES, "old"))

    assert {new: environment.text(new) for new in OLD_NAMES.values()} == dict.fromkeys(
        OLD_NAMES.values(), "old"
    )
    assert tiers_from(environment)[2].grants == "old"


def test_the_new_name_takes_precedence_unless_it_is_blank():
    both = Environment({"CLAUDEOPS_ROOMS": "off", "CLAUDEOPS_SANDBOX": "on"})
    blank = Environment({"CLAUDEOPS_ROOMS": "off", "CLAUDEOPS_SANDBOX": ""})

    assert both.text("CLAUDEOPS_SANDBOX") == "on"
    assert blank.text("CLAUDEOPS_SANDBOX") == "off"


def test_the_source_of_an_old_name_in_a_file_is_the_file():
    environment = Environment(
        {"CLAUDEOPS_ROOMS": "off"}, file="/etc/env", in_file=["CLAUDEOPS_ROOMS"]
    )
    environment.text("CLAUDEOPS_SANDBOX")

    assert [variable.source for variable in environment.variables] == ["/etc/env"]
