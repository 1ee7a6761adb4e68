from __future__ import annotations

import pytest

from escalation.command_policy.decision import Match, allows, forbids, prefix_of
from tests.tables import each_row


@each_row(
    ("rule", "prefix"),
    [
        ("Bash", ()),
        ("Bash(docker restart:*)", ("docker", "restart")),
        ("Bash(docker restart *)", ("docker", "restart")),
        ("Bash(docker restart)", ("docker", "restart")),
        ("Bash(*)", ()),
        ("Read", None),
        ("Read(//etc/**)", None),
        ("BashOutput", None),
    ],
)
def test_a_rule_is_its_words(rule, prefix):
    assert prefix_of(rule) == prefix


@each_row(
    ("rule", "words", "action", "match"),
    [
        ("docker restart", "docker restart web", "docker restart", Match.YES),
        ("docker restart", "docker ps", "docker ps", Match.NO),
        ("docker rest", "docker restart web", "docker restart", Match.NO),
        ("docker", "docker ps", "docker ps", Match.YES),
        ("docker compose down", "docker compose down -v", "docker compose down", Match.YES),
        ("ansible", "ansible-playbook x", "ansible-playbook", Match.NO),
        ("git push --force", "git push origin --force", "git push", Match.YES),
        ("git push --force", "git push origin --force=x", "git push", Match.YES),
        ("git push --force", "git push origin -f", "git push", Match.YES),
        ("git push --force", "git push origin ?", "git push", Match.MAYBE),
        ("git push --force", "git push origin", "git push", Match.NO),
        ("rm -rf /", "rm -f -r /", "rm", Match.YES),
        ("rm -rf /", "rm --force -r /./", "rm", Match.YES),
        ("rm -rf /", "rm -rf /srv", "rm", Match.NO),
        ("rm -rf /", "rm -rf ?", "rm", Match.MAYBE),
        ("sudo", "sudo ls", "", Match.YES),
    ],
)
def test_a_rule_that_forbids_matches_every_order(rule, words, action, match):
    plain = tuple(None if word == "?" else word for word in words.split())

    assert forbids(f"Bash({rule}:*)", plain, tuple(action.split())) is match


def test_a_rule_about_another_tool_forbids_no_command():
    assert forbids("Read", ("Read",), ("Read",)) is Match.NO


@pytest.mark.parametrize(
    ("words", "allowed"),
    [("docker ps -a", True), ("docker", False), ("docker -a ps", False), ("docker psx", False)],
)
def test_a_rule_that_allows_matches_from_the_first_word_on(words, allowed):
    assert allows("Bash(docker ps:*)", tuple(words.split())) is allowed
