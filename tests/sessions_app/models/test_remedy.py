"""Remedies: their parameters, their vectors, and what a person may declare."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError

from sessions_app.models import Remedy, Watch
from sessions_app.models.remedy import (
    Parameter,
    filled,
    plain_command,
    problem_of_command,
    read_parameters,
    script_position,
)
from tests.tables import each_row


@each_row(
    ("text", "expected"),
    [
        ("", ()),
        ("service: service", (Parameter(name="service"),)),
        ("lines: integer 1..500", (Parameter(name="lines", least=1, most=500),)),
        ("mode: one of soft hard", (Parameter(name="mode", choices=("soft", "hard")),)),
        (
            "\n  service : service \n\nlines:integer 0..9\n",
            (Parameter(name="service"), Parameter(name="lines", most=9)),
        ),
    ],
)
def test_parameters_are_read_and_written_alike(text, expected):
    found = read_parameters(text)

    assert found == expected
    assert read_parameters("\n".join(map(str, found))) == expected


@each_row(
    "text",
    [
        *(
            "service",
            "Service: service",
            "a b: service",
            "x: text",
            "x: integer",
            "x: integer 5..1",
        ),
        *("x: integer 5..5", "x: integer -1..5", "x: one of", "x: one of -f", "x: service y"),
        *("x: service\nx: service", "\n".join(f"x{number}: service" for number in range(9))),
    ],
)
def test_other_parameters_are_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        read_parameters(text)


SERVICE = Parameter(name="service")
LINES = Parameter(name="lines", least=1, most=500)
MODE = Parameter(name="mode", choices=("soft", "hard"))
HOSTILE = (
    *("; rm -rf /", "web; rm -rf /", "web\nrm", "web\0", "-f", "--force", "$(reboot)", "`id`"),
    *("", " ", "web ", "web|cat", "../web", "WEB", "web\x1b[2J", "w" * 300, "*", "{service}", "~"),
)


@each_row(
    ("parameter", "value"), [(each, value) for each in (SERVICE, LINES, MODE) for value in HOSTILE]
)
def test_hostile_values_are_refused(parameter, value):
    assert parameter.problem(value, ["web", "db"])


@each_row(
    ("parameter", "value", "is_taken"),
    [
        (SERVICE, "web", True),
        (SERVICE, "cache", False),
        (LINES, "1", True),
        (LINES, "500", True),
        (LINES, "0", False),
        (LINES, "501", False),
        (LINES, "1e2", False),
        (LINES, "٣", False),
        (LINES, "9" * 40, False),
        (MODE, "soft", True),
        (MODE, "sof", False),
    ],
)
def test_values_are_taken_by_their_type(parameter, value, is_taken):
    assert (not parameter.problem(value, ["web", "db", "-f", "a b"])) is is_taken


def test_a_service_that_looks_like_an_option_is_refused_even_if_it_is_known():
    assert SERVICE.problem("-f", ["-f"])
    assert SERVICE.problem("a b", ["a b"])


def test_a_value_stays_one_word():
    command = ("shopctl", "--unit={service}", "{service}", "{{.State}}", "{service}@{mode}")

    assert filled(command, {"service": "a b", "mode": "x"}) == (
        *("shopctl", "--unit=a b", "a b", "{{.State}}", "a b@x"),
    )


@each_row(
    ("command", "position"),
    [
        (["docker", "restart", "web"], None),
        (["/usr/bin/docker", "restart", "web"], None),
        (["/opt/fix.sh", "web"], 0),
        (["sudo", "/opt/fix.sh"], 1),
        (["sudo", "-n", "--", "/opt/fix.sh"], 3),
        (["sudo", "-n", "-u", "www", "systemctl"], None),
        (["docker", "compose", "-f", "/srv/compose.yml", "up"], None),
    ],
)
def test_a_script_is_the_program_of_a_vector_outside_of_the_system(command, position):
    assert script_position(command) == position


def test_programs_of_the_system_get_their_plain_names():
    assert plain_command(["/usr/bin/sudo", "-n", "/bin/systemctl", "restart", "/bin/x"]) == (
        *("sudo", "-n", "systemctl", "restart", "/bin/x"),
    )


@each_row(
    "command",
    [
        *([], "docker restart web", [""], ["docker", 5], ["docker", "a\0"], None),
        *(
            ["bash", "/opt/fix.sh"],
            ["sh", "-c", "{service}"],
            ["env", "A=1", "x"],
            ["python3", "x"],
        ),
        *(["sudo"], ["sudo", "-n"], ["sudo", "-u"], ["sudo", "-i"], ["sudo", "bash", "x"]),
        *(["sudo", "-u", "-i", "id"], ["sudo", "sudo", "id"], ["remedy", "restart", "{service}"]),
        *(["./fix.sh", "{service}"], ["{service}"], ["/opt/{service}"], ["sudo", "{service}"]),
        *(["docker", "restart", "{other}"], ["docker", "restart", "web"], ["xargs", "{service}"]),
    ],
)
def test_vectors_that_could_run_something_else_are_refused(command):
    assert problem_of_command(command, [SERVICE])


def test_a_plain_vector_is_taken():
    assert problem_of_command(["docker", "restart", "{service}"], [SERVICE]) == ""
    assert problem_of_command(["/opt/fix.sh", "--for={service}"], [SERVICE]) == ""


def remedy(**fields: Any) -> Remedy:
    given = {"name": "restart", "description": "Restarts it.", "command": ["docker", "ps"]}
    return Remedy(watch=Watch(name="shop"), **{**given, **fields})


@each_row(
    ("fields", "wrong"),
    [
        ({"tier": 1, "kind": "restart"}, "tier"),
        ({"tier": 1, "kind": "look", "grants": "host"}, "grants"),
        ({"grants": "everything"}, "grants"),
        ({"grants": "write:/srv"}, "grants"),
        ({"grants": "-docker"}, "grants"),
        ({"undo": "restart"}, "undo"),
        ({"service": "a b"}, "service"),
        ({"command": ["sudo", "id"]}, "grants"),
        ({"command": ["sudo", "-u", "www", "/opt/x"], "grants": "host"}, "grants"),
        ({"command": ["docker"], "parameters": "x: y"}, "parameters"),
        ({"command": ["docker", "{x}"]}, "command"),
        (
            {"command": ["docker", "{x}"], "parameters": "x: service", "service": "web"},
            "service",
        ),
    ],
)
def test_each_wrong_field_is_named(fields, wrong):
    with pytest.raises(ValidationError) as refused:
        remedy(**fields).clean()

    assert list(refused.value.message_dict) == [wrong]


def test_a_declaration_is_stored_in_one_spelling():
    row = remedy(
        command=["/usr/bin/docker", "restart", "{service}"],
        parameters=" service :service ",
        grants="docker,docker network",
    )

    row.clean()

    assert row.command == ["docker", "restart", "{service}"]
    assert (row.parameters, row.grants) == ("service: service", "docker network")
    assert (row.usage, row.script_path) == ("restart SERVICE", "")
