from __future__ import annotations

from escalation.command_policy.grants import NAMES, Grants, grants_for
from sessions_app.grants import GrantOption, parse_grants
from tests.tables import each_row


def test_reads_options_in_their_order():
    wishes, problems = parse_grants("docker write:/srv/app/ read:/home/me -ssh, network")

    assert problems == ()
    assert wishes == (
        GrantOption(kind="docker"),
        GrantOption(kind="write", path="/srv/app"),
        GrantOption(kind="read", path="/home/me"),
        GrantOption(kind="ssh", removes=True),
        GrantOption(kind="network"),
    )


@each_row(
    ("word", "remedy"),
    [
        ("dokcer", "did you mean `docker`?"),
        ("-networks", "did you mean `network`?"),
        ("qqqqqqq", "grants are docker, network"),
        ("write:srv/app", "write it as `write:/srv/app`"),
        ("read:", "no absolute path"),
        ("write:/", "the whole file system"),
        ("write:///.", "the whole file system"),
        ("read:/srv/../etc", "name the directory itself"),
    ],
)
def test_a_wrong_word_is_named_with_its_remedy(word, remedy):
    wishes, problems = parse_grants(f"docker {word}")

    assert wishes == (GrantOption(kind="docker"),)
    assert len(problems) == 1
    assert remedy in problems[0]


def test_everything_is_granted_by_default():
    assert grants_for() == Grants(names=frozenset(NAMES))


def test_a_watch_has_the_last_word():
    grants = grants_for("-ssh write:/srv/a write:/srv/b", "ssh -docker -write:/srv/a read:/home/me")

    assert grants.names == set(NAMES) - {"docker"}
    assert grants.writable == ("/srv/b",)
    assert grants.readable == ("/home/me",)


def test_a_wrong_word_opens_nothing():
    assert grants_for("-docker dockr") == Grants(names=frozenset(NAMES) - {"docker"})
