"""ssh, scp and rsync: what the other host is asked to do, and which way files go."""

from __future__ import annotations

from escalation.command_policy.understanding import FULL, LOOK, SAFE, Inner
from tests.escalation.command_policy.programs.tables import Row, assert_is, understood
from tests.tables import each_row

BOTH = "ssh network"
ROWS = [
    Row("scp lighthouse:/var/log/syslog /tmp/", "scp", LOOK, BOTH, ("/tmp/",)),
    Row("scp lighthouse:/var/log/syslog /tmp/log", "scp", LOOK, BOTH, ("/tmp/log",)),
    Row("scp -P 22 lighthouse:a .", "scp", SAFE, BOTH, (".",)),
    Row("scp file me@lighthouse:/etc/cron.d/x", "scp", FULL, BOTH),
    Row("rsync -a lighthouse:/srv/ /srv/copy", "rsync", SAFE, BOTH, ("/srv/copy",)),
    Row("rsync -avn --delete src/ lighthouse:/srv/", "rsync", LOOK, BOTH),
    Row("rsync -a src/ lighthouse:/srv/", "rsync", FULL, BOTH),
    Row("rsync -e 'ssh -p 2222' -a lighthouse:/a /tmp/a", "rsync", LOOK, BOTH, ("/tmp/a",)),
    Row("rsync -a --exclude-from=skip src/ copy/", "rsync", SAFE, "", ("copy/",)),
    Row("rsync -a src/ copy/", "rsync", SAFE, "", ("copy/",)),
]


@each_row("row", ROWS, ids=lambda row: row.command)
def test_a_copy_has_a_direction(row):
    assert_is(row)


@each_row(
    ("command", "text"),
    [
        ("ssh lighthouse uptime", "uptime"),
        ("ssh -p 22 -o BatchMode=yes me@lighthouse 'df -h | head'", "df -h | head"),
        (
            "ssh -o ConnectTimeout=5 -J me@jump:22 lighthouse docker restart web",
            "docker restart web",
        ),
        ("ssh -o User=me lighthouse uptime", "uptime"),
        ("ssh lighthouse -- rm -rf /", "rm -rf /"),
        ("ssh -tt -q lighthouse 'sudo reboot'", "sudo reboot"),
    ],
)
def test_a_remote_command_is_a_command_elsewhere(command, text):
    found = understood(command)

    assert found is not None
    assert (found.action, found.level) == ("ssh", LOOK)
    assert found.grants == {"ssh", "network"}
    assert found.inner == (Inner(text=text, elsewhere=True),)


@each_row(
    "command",
    [
        "ssh lighthouse",
        "ssh -o ProxyCommand=evil lighthouse uptime",
        "ssh -oProxyCommand=evil lighthouse uptime",
        "ssh lighthouse -o ProxyCommand=evil uptime",
        "ssh -o 'LocalCommand evil' -o PermitLocalCommand=yes lighthouse uptime",
        "ssh -F /tmp/evil lighthouse uptime",
        "ssh -L 1:localhost:2 lighthouse uptime",
        "ssh -R 1:localhost:2 lighthouse uptime",
        "ssh -D 1080 lighthouse uptime",
        "ssh -A lighthouse uptime",
        "ssh -J '-oProxyCommand=evil' lighthouse uptime",
        "ssh -l 'x;evil' lighthouse uptime",
        "ssh $computed uptime",
        "ssh lighthouse $computed",
        "ssh '-oProxyCommand=evil' uptime",
        "scp -S evil a lighthouse:b",
        "scp -O 'lighthouse:$(evil)' .",
        "scp 'lighthouse:`evil`' .",
        "scp -o ProxyCommand=evil lighthouse:a .",
        "scp $computed lighthouse:b",
        "rsync -e 'sh -c evil' -a lighthouse:a .",
        "rsync --rsh=evil -a lighthouse:a .",
        "rsync --rsync-path=evil -a lighthouse:a .",
        "rsync -a 'lighthouse:$(evil)' .",
        "sftp lighthouse",
        "ssh -o 'User=x;evil' lighthouse uptime",
        "ssh -o 'user $(evil)' lighthouse uptime",
        "scp lighthouse:/etc/hostname /root/.ssh/id_ed25519 .",
        "rsync -n --files-from=/root/.ssh/id_ed25519 lighthouse:/ /tmp/x",
        "rsync -an --exclude-from=/root/.ssh/id_ed25519 -vvv lighthouse:/ /tmp/x",
        "rsync -an --include-from=/root/.ssh/id_ed25519 -vvv lighthouse:/ /tmp/x",
        "rsync -an -f '. /root/.ssh/id_ed25519' lighthouse:/ /tmp/x",
        "rsync -an '--filter=merge /root/.ssh/id_ed25519' src/ lighthouse:/srv/",
    ],
)
def test_what_forwards_or_starts_something_is_not_understood(command):
    assert understood(command) is None
