"""systemd's programs: looking, restarting, changing, ending."""

from __future__ import annotations

from escalation.command_policy.understanding import FULL, LOOK, NEVER, SAFE
from tests.escalation.command_policy.programs.tables import Row, assert_is, understood
from tests.tables import each_row

ROWS = [
    Row("systemctl stop /srv", "systemctl stop", FULL, "bus"),
    Row("systemctl status nginx --no-pager", "systemctl status", LOOK, "bus"),
    Row("systemctl --user --failed", "systemctl list-units", LOOK, "bus"),
    Row("systemctl status $computed", "systemctl status", LOOK, "bus"),
    Row("systemctl is-active nginx", "systemctl is-active", LOOK, "bus"),
    Row("systemctl --user restart app", "systemctl restart", SAFE, "bus"),
    Row("systemctl restart nginx", "systemctl restart", SAFE, "bus"),
    Row("systemctl -q --no-block try-restart nginx", "systemctl try-restart", SAFE, "bus"),
    Row("systemctl reset-failed", "systemctl reset-failed", SAFE, "bus"),
    Row("systemctl stop '*'", "systemctl stop", FULL, "bus"),
    Row("systemctl kill system.slice", "systemctl kill", FULL, "bus"),
    Row("systemctl enable --now nginx", "systemctl enable", FULL, "bus"),
    Row("systemctl enable /srv/shop/evil.service", "systemctl enable", NEVER, "bus"),
    Row("systemctl link /srv/shop/evil.service", "systemctl link", NEVER, "bus"),
    Row(
        "systemctl set-environment LD_PRELOAD=/srv/x.so", "systemctl set-environment", NEVER, "bus"
    ),
    Row("systemctl daemon-reload", "systemctl daemon-reload", FULL, "bus"),
    Row("systemctl mask ssh", "systemctl mask", FULL, "bus"),
    Row("systemctl reboot", "systemctl reboot", NEVER, "bus"),
    Row("systemctl start reboot.target", "systemctl start", NEVER, "bus"),
    Row("systemctl start poweroff.target nginx", "systemctl start", NEVER, "bus"),
    Row("systemctl isolate rescue.target", "systemctl isolate", NEVER, "bus"),
    Row("service nginx status", "service", LOOK, "bus"),
    Row("service nginx restart", "service", SAFE, "bus"),
    Row("journalctl -u nginx -n 50 --no-pager", "journalctl", LOOK, "bus"),
    Row("journalctl -b -1 -p err", "journalctl", LOOK, "bus"),
    Row("journalctl --since '1 hour ago' -o json", "journalctl", LOOK, "bus"),
    Row("journalctl --vacuum-size=10M", "journalctl", FULL, "bus"),
    Row("journalctl --rotate", "journalctl", FULL, "bus"),
    Row("loginctl", "loginctl list-sessions", LOOK, "bus"),
    Row("loginctl terminate-user root", "loginctl terminate-user", FULL, "bus"),
    Row("hostnamectl", "hostnamectl status", LOOK, "bus"),
    Row("hostnamectl set-hostname x", "hostnamectl set-hostname", FULL, "bus"),
    Row("timedatectl set-time 10:00", "timedatectl set-time", FULL, "bus"),
    Row("systemd-analyze blame", "systemd-analyze blame", LOOK, "bus"),
    Row("resolvectl query example.org", "resolvectl query", LOOK, "bus network"),
]


@each_row("row", ROWS, ids=lambda row: row.command)
def test_a_verb_has_its_level(row):
    assert_is(row)


@each_row(
    "command",
    [
        "systemctl -H root@elsewhere restart nginx",
        "systemctl -M container restart nginx",
        "systemctl --root=/mnt enable nginx",
        "systemctl $computed nginx",
        "systemctl start $computed",
        "systemctl restart nginx $computed",
        "systemctl edit nginx",
        "systemd-run touch /etc/x",
        "journalctl --vac=1",
        "journalctl $computed",
        "journalctl --cursor-file=/etc/x",
        "busctl call org.freedesktop.systemd1 /x y z",
        "busctl --address=unix:/run/x list",
        "service $computed restart",
        "service ../../tmp/evil status",
        "service ../../tmp/evil start",
        "systemctl start --job-mode=isolate x",
    ],
)
def test_what_cannot_be_read_is_not_understood(command):
    assert understood(command) is None
