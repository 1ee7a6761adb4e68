from __future__ import annotations

import pytest

from escalation.command_policy.decision import allows, forbids, prefix_of
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
        ("docker restart", "docker restart web", "docker restart", True),
        ("docker restart", "docker ps", "docker ps", False),
        ("docker rest", "docker restart web", "docker restart", False),
        ("docker", "docker ps", "docker ps", True),
        ("docker compose down", "docker compose down -v", "docker compose down", True),
        ("ansible", "ansible-playbook x", "ansible-playbook", False),
        ("git push --force", "git push origin --force", "git push", True),
        ("git push --force", "git push origin --force=x", "git push", True),
        ("git push --force", "git push origin -f", "git push", True),
        ("git push --force", "git push origin +main", "git push", True),
        ("git push --force", "git push origin", "git push", False),
        ("rm -rf /", "rm -f -r /", "rm", True),
        ("rm -rf /", "rm --force -r /./", "rm", True),
        ("rm -rf /", "rm -rf /srv", "rm", False),
        ("sudo", "sudo ls", "", True),
    ],
)
def test_a_rule_that_forbids_matches_every_order(rule, words, action, match):
    assert forbids(f"Bash({rule}:*)", tuple(words.split()), tuple(action.split())) is match


def test_a_rule_about_another_tool_forbids_no_command():
    assert not forbids("Read", ("Read",), ("Read",))


@pytest.mark.parametrize(
    ("words", "allowed"),
    [("docker ps -a", True), ("docker", False), ("docker -a ps", False), ("docker psx", False)],
)
def test_a_rule_that_allows_matches_from_the_first_word_on(words, allowed):
    assert allows("Bash(docker ps:*)", tuple(words.split())) is allowed
