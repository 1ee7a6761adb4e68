from __future__ import annotations

import pytest

from escalation.gate.doors import (
    NAMES,
    Doors,
    Wish,
    default_doors,
    door_table,
    doors_for,
    parse_doors,
    problems_at,
)


def test_words_are_read_in_their_order():
    wishes, problems = parse_doors("docker write:/srv/app/ read:/home/me -ssh, network")

    assert problems == ()
    assert wishes == (
        Wish(kind="docker"),
        Wish(kind="write", path="/srv/app"),
        Wish(kind="read", path="/home/me"),
        Wish(kind="ssh", closes=True),
        Wish(kind="network"),
    )


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("dokcer", "did you mean `docker`?"),
        ("-networks", "did you mean `network`?"),
        ("qqqqqqq", "doors are docker, network"),
        ("write:srv/app", "write it as `write:/srv/app`"),
        ("read:", "no absolute path"),
        ("write:/", "the whole file system"),
        ("write:///.", "the whole file system"),
        ("read:/srv/../etc", "name the directory itself"),
    ],
)
def test_a_wrong_word_is_named_with_its_remedy(word, remedy):
    wishes, problems = parse_doors(f"docker {word}")

    assert wishes == (Wish(kind="docker"),)
    assert len(problems) == 1
    assert remedy in problems[0]


def test_the_host_is_never_open_at_tier_1():
    assert "never open at Tier 1" in problems_at(1, "host")[0]
    assert problems_at(2, "host") == ()
    assert problems_at(1, "-host") == ()
    assert "host" not in doors_for(1, "host", "host").names


def test_each_tier_has_its_defaults():
    assert default_doors(1).names == set(NAMES) - {"host"}
    assert default_doors(2).names == default_doors(3).names == set(NAMES)


def test_a_watch_has_the_last_word():
    doors = doors_for(
        2, "-ssh write:/srv/a write:/srv/b", "ssh -docker -write:/srv/a read:/home/me"
    )

    assert doors.names == set(NAMES) - {"docker"}
    assert doors.writable == ("/srv/b",)
    assert doors.readable == ("/home/me",)


def test_a_wrong_word_opens_nothing():
    assert doors_for(1, "-docker dockr") == Doors(names=frozenset(NAMES) - {"docker", "host"})


def test_the_table_shows_the_difference_to_the_tier_below():
    rows = door_table(doors_for(2, "-ssh write:/srv/app"), doors_for(1))

    changes = {row.word: row.change for row in rows if row.change}
    assert changes == {"ssh": "closed", "host": "opened", "write:/srv/app": "opened"}
    assert [row.word for row in rows[:7]] == list(NAMES)
    assert all(row.meaning for row in rows)


def test_the_lowest_tier_has_nothing_to_be_compared_with():
    assert {row.change for row in door_table(doors_for(1, "read:/home/me"))} == {""}
