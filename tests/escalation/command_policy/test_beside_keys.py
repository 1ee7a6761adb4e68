"""Commands beside ssh or kubectl, whose sandbox has keys, must not read files."""

from __future__ import annotations

import pytest

from escalation.command_policy.decision import CommandPolicy, decide, reads_files, takes_a_file_in
from escalation.command_policy.grants import AGENT, SSH, grants_for
from sessions_app.models.session import Verdict
from tests.tables import each_row


def judged(command: str, tier: int = 1, **facts):
    grants = facts.pop("grants", grants_for(tier))
    return decide(CommandPolicy(tier=tier, grants=grants, workdir="/srv/shop", **facts), command)


@each_row(
    "command",
    [
        "ssh lighthouse uptime",
        "ssh lighthouse df -h | head -3",
        "ssh lighthouse df -h | head -n 3 | grep data",
        "ssh lighthouse 'docker ps' | grep -v Exited | wc -l",
        "ssh lighthouse df | awk '$5 > 80 {print $6}' | sort -rn | cut -d' ' -f1",
        'for h in lighthouse harbour; do echo "== $h"; ssh $h uptime; done',
        "timeout 5 ssh lighthouse uptime",
        "kubectl get pods -A | grep -c Running",
        "ssh lighthouse uptime < /dev/null",
    ],
)
def test_what_only_reads_its_input_may_stand_beside_keys(command):
    assert judged(command).verdict == Verdict.ALLOW


@each_row(
    "command",
    [
        "ssh lighthouse uptime; cat /root/.ssh/id_ed25519",
        "ssh lighthouse uptime; cat key",
        "ssh lighthouse uptime | cat - key",
        "ssh lighthouse uptime; base64 ~/.ssh/*",
        "ssh lighthouse uptime; grep -r . ~/.ssh",
        "ssh lighthouse uptime; grep . key",
        "ssh lighthouse uptime; grep -f key README.md",
        "ssh lighthouse uptime; head -c 500 key",
        "ssh lighthouse uptime; sort --files0-from=key",
        "ssh lighthouse uptime; date -f key",
        "echo $(ssh lighthouse uptime) $(</root/.ssh/id_ed25519)",
        "ssh lighthouse cat < ~/.ssh/id_ed25519",
        "cd; ssh lighthouse uptime; cat .ssh/id_ed25519",
        "kubectl get pods; cat ~/.kube/config",
        "ssh lighthouse uptime; sed -n p key",
        "ssh lighthouse uptime; jq -Rr . key",
    ],
)
def test_what_could_read_a_file_may_not(command):
    decision = judged(command)

    assert decision.verdict != Verdict.ALLOW
    assert not decision.grants


def test_the_reason_says_to_run_them_one_by_one():
    decision = judged("ssh lighthouse uptime; cat key")

    assert decision.rule == "beside keys"
    assert "one by one" in decision.reason


@pytest.mark.parametrize(
    "command", ["cat key; ls", "docker ps; cat app.log", "curl -s http://x/ | cat - README.md"]
)
def test_without_keys_in_the_room_files_may_be_read(command):
    assert judged(command).verdict == Verdict.ALLOW


def test_a_computed_word_may_be_a_file():
    assert reads_files(("head", None))
    assert not reads_files(("echo", None))


def test_only_nothing_may_be_taken_in():
    assert not takes_a_file_in("ssh h uptime < /dev/null")
    assert takes_a_file_in("ssh h uptime < /dev/nullx/../../key")
    assert takes_a_file_in("ssh h uptime <key")


COPIES = [
    "scp README.md lighthouse:/srv/",
    "scp -r . lighthouse:/srv/",
    "scp lighthouse:/etc/hostname README.md harbour:/srv/",
    "rsync -a src/ lighthouse:/srv/",
    "rsync -aL --remove-source-files src/ lighthouse:/srv/",
]
RUN_WHAT_FILES_NAME = ["ansible-playbook site.yml", "git pull git@lighthouse:shop.git"]


@each_row("command", [*COPIES, *RUN_WHAT_FILES_NAME])
def test_what_sends_files_or_runs_what_they_name_gets_the_agent_and_no_key(command):
    decision = judged(command, 3, ssh_agent=True)

    assert decision.verdict == Verdict.ALLOW
    assert AGENT in decision.grants
    assert SSH not in decision.grants


@each_row("command", COPIES)
@each_row("facts", [{}, {"ssh_agent": True, "sandboxed": False}])
def test_denies_sending_files_beside_keys(command, facts):
    decision = judged(command, 3, **facts)

    assert decision.verdict == Verdict.DENY
    assert decision.rule == "keys beside files"
    assert "ssh-agent" in decision.reason


@pytest.mark.parametrize("command", RUN_WHAT_FILES_NAME)
def test_without_an_agent_tier_3_has_the_keys_for_a_remedy_that_files_name(command):
    decision = judged(command, 3)

    assert decision.verdict == Verdict.ALLOW
    assert SSH in decision.grants


def test_without_an_agent_tier_2_pulls_nothing_beside_the_keys():
    assert judged("git pull git@lighthouse:shop.git", 2).verdict == Verdict.DENY


def test_agent_gives_nothing_without_the_ssh_grant():
    decision = judged(
        "scp README.md lighthouse:/srv/", 3, ssh_agent=True, grants=grants_for(3, "-ssh")
    )

    assert decision.rule == "grant ssh is missing"


@pytest.mark.parametrize(
    "command",
    [
        "ssh lighthouse uptime; scp link lighthouse:/srv/",
        "scp link lighthouse:/srv/ && ssh lighthouse cat /srv/link",
        "kubectl get pods; rsync -aL links/ lighthouse:/srv/",
    ],
)
def test_a_copy_does_not_stand_beside_what_has_the_keys(command):
    decision = judged(command, 3, ssh_agent=True)

    assert decision.verdict == Verdict.DENY
    assert decision.rule == "beside keys"


@pytest.mark.parametrize(
    "command", ["kubectl cp link web:/tmp/x", "kubectl cp -n shop ./a shop/web:/tmp/x"]
)
def test_nothing_is_copied_into_a_cluster_beside_its_login(command):
    decision = judged(command, 3, ssh_agent=True)

    assert decision.verdict == Verdict.ISOLATE
    assert not decision.grants


@pytest.mark.parametrize(
    "command",
    [
        "scp lighthouse:/var/log/syslog /tmp/",
        "scp lighthouse:/etc/hostname harbour:/tmp/",
        "kubectl cp web:/var/log/app.log /tmp/app.log",
        "git push git@lighthouse:shop.git main",
    ],
)
def test_what_sends_no_file_of_this_side_needs_no_agent(command):
    assert judged(command, 3).verdict == Verdict.ALLOW
