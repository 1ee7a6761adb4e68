"""The host's own state and its packages."""

from __future__ import annotations

import pytest

from escalation.gate.understanding import FULL, LOOK, NEVER, SAFE
from tests.escalation.gate.programs.tables import Row, assert_is, understood

ROWS = [
    Row("ps aux", "ps", LOOK, "processes"),
    Row("top -b -n 1", "top", LOOK, "processes"),
    Row("pgrep -a nginx", "pgrep", LOOK, "processes"),
    Row("pgrep -f 'python.*worker'", "pgrep", LOOK, "processes"),
    Row("lsof -p $computed", "lsof", LOOK, "processes"),
    Row("lsof -i :80 -n -P", "lsof", LOOK, "processes network"),
    Row("sysctl vm.swappiness", "sysctl", LOOK),
    Row("sysctl -w vm.swappiness=1", "sysctl", FULL, "host"),
    Row("sysctl vm.swappiness=1", "sysctl", FULL, "host"),
    Row("kill -0 4711", "kill", LOOK, "processes"),
    Row("kill 4711", "kill", FULL, "host"),
    Row("kill -9 4711 4712", "kill", FULL, "host"),
    Row("kill -s HUP 4711", "kill", FULL, "host"),
    Row("kill -9 -1", "kill", NEVER, "host"),
    Row("kill 1", "kill", NEVER, "host"),
    Row("pkill -f worker", "pkill", FULL, "host"),
    Row("pkill -9 -f .", "pkill", NEVER, "host"),
    Row("pkill -u root", "pkill", NEVER, "host"),
    Row("pkill '[a-z]'", "pkill", NEVER, "host"),
    Row("killall -u root", "killall", NEVER, "host"),
    Row("killall nginx", "killall", FULL, "host"),
    Row("dmesg -T", "dmesg", LOOK, "host"),
    Row("mount", "mount", LOOK),
    Row("mount /dev/sdb1 /mnt", "mount", FULL, "host"),
    Row("crontab -l", "crontab", LOOK, "host"),
    Row("crontab -r", "crontab", FULL, "host"),
    Row("crontab evil", "crontab", FULL, "host"),
    Row("nginx -t", "nginx", LOOK),
    Row("nginx -s reload", "nginx -s", SAFE, "host"),
    Row("nginx -s stop", "nginx -s", FULL, "host"),
    Row("zpool status", "zpool", LOOK, "host"),
    Row("reboot", "reboot", NEVER, "host"),
    Row("shutdown -r now", "shutdown", NEVER, "host"),
    Row("useradd evil", "useradd", NEVER, "host"),
    Row("iptables -F", "iptables", FULL, "host"),
    Row("mkfs.ext4 /dev/sda", "mkfs.ext4", NEVER, "host"),
    Row("dpkg -l", "dpkg", LOOK),
    Row("apt list --installed", "apt", LOOK),
    Row("apt-get -s upgrade", "apt-get", LOOK),
    Row("apt-get install -y jq", "apt-get install", FULL, "host"),
    Row("apt-cache policy git", "apt-cache", LOOK),
    Row("rpm -qa", "rpm", LOOK),
    Row("snap list", "snap", LOOK),
    Row("snap list --all", "snap", LOOK),
    Row("dnf list --installed", "dnf", LOOK),
    Row("dnf history list", "dnf", LOOK),
    Row("zpool status -v tank", "zpool", LOOK, "host"),
    Row("ufw status verbose", "ufw", LOOK, "host"),
    Row("modprobe -r nbd", "modprobe", FULL, "host"),
    Row("logrotate -f /etc/logrotate.d/nginx", "logrotate", FULL, "host"),
    Row("pip list", "pip list", LOOK),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.command)
def test_what_it_does_to_the_host(row):
    assert_is(row)


@pytest.mark.parametrize(
    "command",
    [
        "top",
        "kill $computed",
        "kill %1",
        "kill -- --5",
        "pkill $computed",
        "lsof -D /etc/x",
        "dmesg -C",
        "dmesg --clear",
        "nginx -t -c /tmp/evil.conf",
        "nginx -g 'load_module /tmp/evil.so;'",
        "apt-get -o APT::Update::Pre-Invoke::=evil update",
        "apt-get install ./evil.deb",
        "apt -c evil update",
        "apt-get -qqo Dpkg::Pre-Invoke::=evil install jq",
        "dpkg -i evil.deb",
        "dnf install ./evil.rpm",
        "dnf install --setopt=pluginpath=/tmp jq",
        "rpm -q --eval '%(evil)'",
        "rpm -i evil.rpm",
        "dpkg -l --admindir=evil",
        "dnf list --setopt=pluginpath=/srv/shop/evil",
        "dnf history undo last",
        "yum repoquery --config=/srv/shop/evil.conf",
        "apk info --root /srv/shop",
        "certbot certificates --logs-dir /etc/cron.d",
        "certbot certificates -c evil.ini",
        "certbot renew --pre-hook evil",
        "zpool status -c evil",
        "logrotate -f ./evil.conf",
        "insmod ./evil.ko",
        "modprobe -C ./evil.conf x",
        "iptables --modprobe=/srv/shop/evil -F",
        "ip6tables -M /srv/shop/evil -F",
        "mount -t fuse './evil#x' /mnt",
        "pip install evil",
        "npm run evil",
        "make",
    ],
)
def test_what_cannot_be_read_is_not_understood(command):
    assert understood(command) is None
