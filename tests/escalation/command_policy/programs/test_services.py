"""systemd's programs: looking, restarting, changing, ending."""

from __future__ import annotations

from escalation.command_policy.understanding import FULL, LOOK, NEVER, SAFE
from tests.escalation.command_policy.vectors import (
    Row,
    assert_is,
    assert_not_understood,
    understood,
)
from tests.tables import each_row

ROWS = [
    ("systemctl status nginx --no-pager", "systemctl status", LOOK),
    ("systemctl --user --failed", "systemctl list-units", LOOK),
    ("systemctl is-active nginx", "systemctl is-active", LOOK),
    ("systemctl cat nginx", "systemctl cat", LOOK),
    ("systemctl list-timers --all", "systemctl list-timers", LOOK),
    ("systemctl --user restart app", "systemctl restart", SAFE),
    ("systemctl restart nginx", "systemctl restart", SAFE),
    ("systemctl start nginx", "systemctl start", SAFE),
    ("systemctl reload nginx", "systemctl reload", SAFE),
    ("systemctl -q --no-block try-restart nginx", "systemctl try-restart", SAFE),
    ("systemctl reset-failed", "systemctl reset-failed", SAFE),
    ("systemctl daemon-reload", "systemctl daemon-reload", SAFE),
    ("systemctl start systemd-hybrid-sleep", "systemctl start", NEVER),
    ("systemctl start systemd-suspend-then-hibernate.service", "systemctl start", NEVER),
    ("systemctl start suspend-then-hibernate.target", "systemctl start", NEVER),
    ("systemctl stop '*'", "systemctl stop", FULL),
    ("systemctl stop /srv", "systemctl stop", FULL),
    ("systemctl kill system.slice", "systemctl kill", FULL),
    ("systemctl enable --now nginx", "systemctl enable", FULL),
    ("systemctl disable nginx", "systemctl disable", FULL),
    ("systemctl mask ssh", "systemctl mask", FULL),
    ("systemctl enable /srv/shop/evil.service", "systemctl enable", NEVER),
    ("systemctl link /srv/shop/evil.service", "systemctl link", NEVER),
    ("systemctl set-environment LD_PRELOAD=/srv/x.so", "systemctl set-environment", NEVER),
    ("systemctl reboot", "systemctl reboot", NEVER),
    ("systemctl start reboot.target", "systemctl start", NEVER),
    ("systemctl start nginx poweroff.target", "systemctl start", NEVER),
    ("systemctl isolate rescue.target", "systemctl isolate", NEVER),
    ("service --status-all", "service", LOOK),
    ("service nginx status", "service", LOOK),
    ("service nginx restart", "service", SAFE),
    ("service reboot start", "service", NEVER),
    ("journalctl -u nginx -n 50 --no-pager", "journalctl", LOOK),
    ("journalctl -b -1 -p err", "journalctl", LOOK),
    ("journalctl --since '1 hour ago' -o json _PID=1", "journalctl", LOOK),
    ("journalctl --vacuum-size=10M", "journalctl", FULL),
    ("journalctl --rotate", "journalctl", SAFE),
    ("loginctl", "loginctl list-sessions", LOOK),
    ("loginctl terminate-user root", "loginctl terminate-user", FULL),
    ("hostnamectl", "hostnamectl status", LOOK),
    ("hostnamectl set-hostname x", "hostnamectl set-hostname", FULL),
    ("timedatectl", "timedatectl status", LOOK),
    ("timedatectl set-time 10:00", "timedatectl set-time", FULL),
    ("systemd-analyze blame", "systemd-analyze blame", LOOK),
    ("resolvectl query example.org", "resolvectl query", LOOK),
    ("resolvectl flush-caches", "resolvectl flush-caches", FULL),
]


@each_row(("command", "action", "level"), ROWS)
def test_a_verb_has_its_level(command, action, level):
    assert_is(Row(command, action, level, "bus"))


@each_row(
    "command",
    [
        "systemctl -H root@elsewhere restart nginx",
        "systemctl --host=root@elsewhere restart nginx",
        "systemctl -M container restart nginx",
        "systemctl --machine=container restart nginx",
        "systemctl --root=/mnt enable nginx",
        "systemctl --image=x enable nginx",
        "systemctl edit nginx",
        "systemctl --ro=/mnt enable nginx",
        "systemctl start --job-mode=isolate x",
        "systemd-run touch /etc/x",
        "journalctl --vac=1",
        "journalctl --cursor-file=/etc/x",
        "journalctl -M container",
        "journalctl --root=/mnt",
        "busctl call org.freedesktop.systemd1 /x y z",
        "busctl --address=unix:/run/x list",
        "loginctl attach seat0 /sys/x",
        "service ../../tmp/evil status",
        "service ../../tmp/evil start",
        "service nginx evil",
        "service nginx restart now",
        "service",
    ],
)
def test_what_cannot_be_read_is_not_understood(command):
    assert_not_understood(command)


@each_row("command", ["systemctl status nginx", "journalctl -u nginx -n 5"])
def test_no_pager_is_started(command):
    program, *words = command.split()

    assert understood(command).argv == (program, "--no-pager", *words)
