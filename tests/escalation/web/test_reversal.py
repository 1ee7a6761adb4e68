"""Commands that reverse a change, only where that is certain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escalation.web.changes import NOT_KNOWN, NOTHING_LEFT, OPPOSITES, reversal_of, reversal_of_edit
from tests.tables import each_row


@each_row(
    ("action", "command"),
    [
        ("docker stop web", "docker start web"),
        ("docker start web db", "docker stop web db"),
        ("docker kill web", "docker start web"),
        ("podman pause web", "podman unpause web"),
        ("docker container stop web", "docker container start web"),
        ("docker compose stop", "docker compose start"),
        ("docker compose stop web", "docker compose start web"),
        ("docker network disconnect front web", "docker network connect front web"),
        ("docker rename web old", "docker rename old web"),
        ("docker service update --image web:2 shop_web", "docker service rollback shop_web"),
        ("systemctl stop nginx", "systemctl start nginx"),
        ("systemctl disable nginx", "systemctl enable nginx"),
        ("systemctl unmask nginx", "systemctl mask nginx"),
        ("service nginx stop", "service nginx start"),
        ("kubectl rollout restart deployment/web", "kubectl rollout undo deployment/web"),
        ("kubectl set image deploy/web web=web:2", "kubectl rollout undo deploy/web"),
        ("kubectl cordon node-1", "kubectl uncordon node-1"),
        ("helm upgrade shop ./chart", "helm rollback shop"),
        ("helm install shop ./chart", "helm uninstall shop"),
        ("apt-get install -y nginx", "apt-get remove nginx"),
        ("mv a.conf b.conf", "mv b.conf a.conf"),
        ("mkdir /srv/new", "rmdir /srv/new"),
    ],
)
def test_a_command_is_reversed_by_its_opposite(action, command):
    found = reversal_of(action)

    assert (found.text, found.is_command, found.is_known) == (command, True, True)


@pytest.mark.parametrize(
    "action", ["docker restart web", "systemctl reload nginx", "docker compose restart"]
)
def test_a_restart_has_nothing_to_reverse(action):
    assert reversal_of(action).text == NOTHING_LEFT


@each_row(
    "action",
    [
        "",
        "rm -rf /srv/cache",
        "docker rm web",
        "docker stop -t 5 web",
        "docker stop …",
        "docker stop",
        "docker run --name web image",
        "docker compose up -d",
        "docker compose stop -t 5 web",
        "helm upgrade --install shop ./chart",
        "kubectl apply -f web.yml",
        "kubectl rollout restart deployment web",
        "mv -t there a",
        "mv a there/",
        "mkdir -p a/b",
        "write /srv/x",
        "python3 fix.py",
    ],
)
def test_an_uncertain_reversal_is_not_known(action):
    found = reversal_of(action)

    assert (found.text, found.is_command, found.is_known) == (NOT_KNOWN, False, False)


def test_a_scale_needs_the_earlier_number_to_be_reversed():
    found = reversal_of("kubectl scale deployment/web --replicas=3")

    assert not found.is_known
    assert "before" in found.text


def test_a_commit_is_reversed_by_git_revert():
    assert "git revert" in reversal_of("git push origin main").text


def test_a_failed_command_has_no_known_reversal():
    found = reversal_of("docker stop web", has_failed=True)

    assert (found.is_command, found.is_known) == (False, False)


@pytest.mark.parametrize(
    ("diff", "is_cut", "is_known"),
    [("-a\n+b", False, True), ("-a", True, False), ("", False, False)],
)
def test_an_edit_is_reversed_by_its_diff(diff, is_cut, is_known):
    assert reversal_of_edit(diff, is_cut=is_cut).is_known is is_known


@given(action=st.text(max_size=80))
def test_every_command_gets_an_answer(action):
    assert reversal_of(action).text


@given(
    verb=st.sampled_from(["stop", "start", "pause", "unpause"]), name=st.sampled_from(["a", "b"])
)
def test_reversing_twice_gives_the_original_command(verb, name):
    there = reversal_of(f"docker {verb} {name}").text

    assert there.split()[1] == OPPOSITES[verb]
    assert reversal_of(there).text == f"docker {verb} {name}"
