"""ssh: its own options, and what rsync, scp, sftp and git ask the far side for."""

from __future__ import annotations

from escalation.command_policy.programs.ssh import FORCED
from escalation.command_policy.understanding import FULL, LOOK
from tests.escalation.command_policy.vectors import (
    Row,
    assert_is,
    assert_not_understood,
    judge,
    understood,
)
from tests.tables import each_row

UPTIME = (("uptime",),)
FETCH = (("git-upload-pack", "/srv/shop.git"),)


@each_row(
    ("command", "inner"),
    [
        ("ssh lighthouse uptime", UPTIME),
        ("ssh lighthouse -p 22 uptime", UPTIME),
        ("ssh -- lighthouse uptime", UPTIME),
        ("ssh lighthouse -- uptime", UPTIME),
        ("ssh -4qvx -C -n me@lighthouse uptime", UPTIME),
        ("ssh -o ConnectTimeout=5 -J me@jump:22 lighthouse uptime", UPTIME),
        ("ssh -o User=me -o 'Port 22' lighthouse uptime", UPTIME),
        (
            "ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null lighthouse uptime",
            UPTIME,
        ),
        ("ssh -p 22 me@lighthouse 'df -h | head'", (("df", "-h"), ("head",))),
        ("ssh lighthouse docker restart 'my web'", (("docker", "restart", "my", "web"),)),
        ("ssh lighthouse cat \"'my file'\"", (("cat", "my file"),)),
        ("ssh lighthouse -- rm -rf /", (("rm", "-rf", "/"),)),
        ("ssh [fe80::1] uptime", UPTIME),
        ("ssh -o SendEnv=GIT_PROTOCOL -p 22 git@forge \"git-upload-pack '/srv/shop.git'\"", FETCH),
    ],
)
def test_the_far_side_reads_the_words_joined_by_blanks(command, inner):
    found = understood(command)

    assert (found.action, found.level, found.grant) == ("ssh", LOOK, "ssh")
    assert found.elsewhere
    assert found.inner == inner


def test_our_settings_come_first_and_the_models_behind_them():
    argv = understood("ssh -vo ConnectTimeout=5 -l me lighthouse -p 22 df -h").argv

    assert argv[:2] == ("ssh", "-T")
    settings = tuple(argv[place + 1] for place, word in enumerate(argv) if word == "-o")
    assert settings == (*FORCED, "ConnectTimeout=5")
    dashes = argv.index("--")
    assert argv[dashes + 1 :] == ("lighthouse", "df", "-h")
    assert {"-v", "-l", "me", "-p", "22"} <= set(argv[:dashes])


@each_row(
    "setting",
    [
        "BatchMode=no",
        "ForwardAgent=no",
        "RemoteCommand=none",
        "RequestTTY=no",
        "StrictHostKeyChecking=accept-new",
        "UserKnownHostsFile=/dev/null",
        "ControlMaster no",
    ],
)
def test_a_setting_without_use_is_left_out(setting):
    argv = understood(f"ssh -o '{setting}' lighthouse uptime").argv

    assert argv == understood("ssh lighthouse uptime").argv


@each_row(
    "command",
    [
        "ssh",
        "ssh lighthouse",
        "ssh -o ProxyCommand=evil lighthouse uptime",
        "ssh -oProxyCommand=evil lighthouse uptime",
        "ssh -o 'proxycommand evil' lighthouse uptime",
        "ssh lighthouse -o ProxyCommand=evil uptime",
        "ssh -o 'LocalCommand evil' -o PermitLocalCommand=yes lighthouse uptime",
        "ssh -o KnownHostsCommand=evil lighthouse uptime",
        "ssh -o IdentityFile=/x lighthouse uptime",
        "ssh -o IdentityAgent=/x lighthouse uptime",
        "ssh -o PKCS11Provider=/x.so lighthouse uptime",
        "ssh -o Include=/x lighthouse uptime",
        "ssh -o ForwardAgent=yes lighthouse uptime",
        "ssh -o SendEnv=SECRET lighthouse uptime",
        "ssh -o SetEnv=A=b lighthouse uptime",
        "ssh -o LocalForward=1:x:2 lighthouse uptime",
        "ssh -o UserKnownHostsFile=/srv/shop/x lighthouse uptime",
        "ssh -o ControlPath=/tmp/x lighthouse uptime",
        "ssh -o RemoteCommand=reboot lighthouse uptime",
        "ssh -o 'ConnectTimeout=5\nProxyCommand=evil' lighthouse uptime",
        "ssh -o 'User=x;evil' lighthouse uptime",
        "ssh -o 'user $(evil)' lighthouse uptime",
        "ssh -o User=-oProxyCommand=x lighthouse uptime",
        "ssh -F /tmp/evil lighthouse uptime",
        "ssh -L 1:localhost:2 lighthouse uptime",
        "ssh -R 1:localhost:2 lighthouse uptime",
        "ssh -D 1080 lighthouse uptime",
        "ssh -W x:1 lighthouse",
        "ssh -w 0 lighthouse uptime",
        "ssh -A lighthouse uptime",
        "ssh -i key lighthouse uptime",
        "ssh -E /etc/x lighthouse uptime",
        "ssh -S /tmp/x lighthouse uptime",
        "ssh -M lighthouse uptime",
        "ssh -O exit lighthouse",
        "ssh -N lighthouse",
        "ssh -f lighthouse uptime",
        "ssh -I /x.so lighthouse uptime",
        "ssh -J '-oProxyCommand=evil' lighthouse uptime",
        "ssh -J 'x;evil' lighthouse uptime",
        "ssh -l 'x;evil' lighthouse uptime",
        "ssh -p '22;evil' lighthouse uptime",
        "ssh '-oProxyCommand=evil' uptime",
        "ssh -- -oProxyCommand=evil uptime",
        "ssh 'light;house' uptime",
        "ssh -s lighthouse netconf",
        "ssh -s lighthouse sftp more",
        "ssh lighthouse 'docker $x'",
        "ssh lighthouse 'ls /tmp/a*'",
        "ssh lighthouse 'cat < /etc/passwd'",
        "ssh lighthouse 'echo x > /etc/motd'",
        "ssh lighthouse 'reboot & uptime'",
        "ssh lighthouse 'uptime\nreboot'",
    ],
)
def test_what_forwards_or_starts_something_is_not_understood(command):
    assert_not_understood(command)


@each_row("command", ["ssh -t lighthouse uptime", "ssh -tt lighthouse uptime"])
def test_a_terminal_needs_tier_3(command):
    assert [judge(command, tier).rule for tier in (1, 2, 3)] == ["needs Tier 3"] * 2 + [
        "understood"
    ]
    assert "-T" not in judge(command, 3).argv


def test_sftp_needs_tier_3_and_a_file_is_read_by_cat():
    scp = (
        "ssh -x -oPermitLocalCommand=no -oClearAllForwardings=yes -oRemoteCommand=none"
        " -oRequestTTY=no -oForwardAgent=no -l me -s -- lighthouse sftp"
    )

    assert judge(scp, 2).rule == "needs Tier 3"
    assert "`ssh HOST cat FILE`" in judge(scp, 2).reason
    assert judge(scp, 3).argv[-4:] == ("-s", "--", "lighthouse", "sftp")


FAR_SIDE = [
    ("rsync --server --sender -vlogDtpre.iLsfxCIvu . /srv/data", "rsync", LOOK),
    ("rsync --server --sender -nre.LsfxCIvu --numeric-ids . /srv/data /srv/b", "rsync", LOOK),
    ("rsync --server --sender -e.LsfxCIvu --log-format=%i . /etc/hosts", "rsync", LOOK),
    ("rsync --server --sender -vlogDtpre.iLsfxCIvu . /etc", "rsync", FULL),
    ("rsync --server --sender -vlogDtpre.iLsfxCIvu . data", "rsync", FULL),
    ("rsync --server --sender -r . /srv/../root", "rsync", FULL),
    ("rsync --server -vlogDtpre.iLsfxCIvu --delete . /srv/data", "rsync", FULL),
    ("git-upload-pack shop.git", "git fetch", LOOK),
    ("git upload-pack shop.git", "git fetch", LOOK),
    ("git-receive-pack shop.git", "git push", FULL),
    ("git receive-pack shop.git", "git push", FULL),
    ("scp -f /srv/data", "scp", LOOK),
    ("scp -r -f /root", "scp", FULL),
    ("scp -r -p -t /srv", "scp", FULL),
    ("borg serve --restrict-to-path /srv", "borg serve", FULL),
]


@each_row(("command", "action", "level"), FAR_SIDE)
def test_what_other_programs_ask_the_far_side_for(command, action, level):
    assert_is(Row(command, action, level), elsewhere=True)


@each_row(
    "command",
    [
        "rsync -a /srv/a /srv/b",
        "rsync --server --sender",
        "rsync --server --sender -r",
        "rsync --server --sender -rs . /srv",
        "rsync --server --sender -re.L --log-file=/etc/x . /srv",
        "rsync --server --sender --remove-source-files -r . /srv",
        "rsync --server --daemon .",
        "rsync --server --sender -r -M--log-file=/etc/x . /srv",
        "rsync --server --config=/x -r . /srv",
        "rsync --sender --server -r . /srv",
        "rsync --server --sender -r . --log-file=/etc/x",
        "scp /srv/a elsewhere:/b",
        "scp -f -t /srv",
        "scp -S evil -f /srv",
        "git-upload-pack",
        "git-upload-pack a b",
        "borg create x y",
    ],
)
def test_other_uses_there_are_not_understood(command):
    assert_not_understood(command, elsewhere=True)


@each_row("command", ["rsync -a a b", "scp a b:", "sftp b", "borg serve", "git-upload-pack x"])
def test_here_they_run_in_the_command_sandbox(command):
    assert_not_understood(command)


def test_a_push_by_ssh_is_a_push_for_the_rules():
    push = "ssh git@forge \"git-receive-pack '/srv/shop.git'\""

    assert judge(push, 3, ask=("Bash(git push:*)",)).verdict == "ask"
    assert judge(push, 3, denied=("Bash(git push:*)",)).rule == "denied by Bash(git push:*)"
