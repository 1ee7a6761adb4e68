"""Remedies at Tier 2 and 3 do in a home lab what they do by hand, for root and for a user.

Each remedy runs through the command runner and its sandboxes. A probe, which root runs by hand,
looks for its effect.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.homelab.lab import OPERATOR, PROJECT, HomeLab

pytestmark = [pytest.mark.prove, pytest.mark.timeout(3600)]

MOST_BROKEN = 0.03
GRANTS = "write:/var/cache/stock write:/var/log/stock write:/etc/nginx http:127.0.0.1:8099"
EFFECT_SECONDS = 3
CHANGES = "another answer than before"

# Everything runs again before each remedy. $OWNER is the user who plays, $LAB has its files.
HEAL = r"""
git -C $LAB -c safe.directory='*' checkout -q . ; chown -R $OWNER: $LAB
rm -f /etc/nginx/conf.d/*
for unit in nginx stock postgresql@15-main cron; do
    systemctl is-active -q $unit || systemctl restart $unit
done
docker unpause db > /dev/null 2>&1; docker start db > /dev/null
touch /var/log/stock/app.log; chown pat: /var/log/stock/app.log
until curl -s -o /dev/null 127.0.0.1:8099 && [ -e /run/nginx.pid ]; do sleep 0.1; done
"""


class Remedy(NamedTuple):
    tier: int
    command: str
    probe: str
    """Its answer tells whether the remedy worked."""
    wanted: str = CHANGES
    before: str = ""
    """Breaks or prepares something."""


R = Remedy
NGINX, STOCK, CRON, POSTGRES = (
    f"systemctl show -p MainPID --value {unit}"
    for unit in ("nginx", "stock", "cron", "postgresql@15-main")
)
WORKERS = "pgrep -P $(cat /run/nginx.pid) | sort | tr '\\n' ' '"
HUPS, POSTS = "wc -l < /var/lib/stock/hups", "wc -l < /var/lib/stock/posts"
STARTED = "docker inspect -f '{{.State.StartedAt}}' db"
STATE = "docker inspect -f '{{.State.Status}}' db"
ACTIVE, IS_DOWN = "systemctl is-active stock", "systemctl stop stock"
RELOADED = "systemctl show -p NeedDaemonReload --value stock"
EDITED = "sleep 1; touch /etc/systemd/system/stock.service"
FAILED, FAILS = "systemctl is-failed backup", "systemctl start backup"
FILLED = "stat -c %y /var/lib/stock/filled"
CONFIG, GOOD = "grep workers $LAB/config/app.ini", "workers = 2"
BAD = "sed -i 's/workers = 2/workers = 0/' $LAB/config/app.ini; chown $OWNER: $LAB/config/app.ini"
SIZE, LOGGED = "stat -c %s /var/log/stock/app.log", "seq 99 > /var/log/stock/app.log"
CACHED = "find /var/cache/stock -mindepth 1 | wc -l"
OLD = "find /var/cache/stock -name b | wc -l"
FULL_CACHE = """
mkdir -p /var/cache/stock/a
touch -d '30 days ago' /var/cache/stock/a/b
chown -R pat: /var/cache/stock
"""
BOGUS = "echo 'bogus on;' > /etc/nginx/conf.d/shop.conf"
IS_BOGUS = "grep -c bogus /etc/nginx/conf.d/shop.conf"
MOUNTED = "mountpoint -q /mnt/backup && echo on || echo off"
TIMER = "systemctl is-enabled fill.timer"
ORDER = "runuser -u postgres -- psql -Atd shop -c 'select state from orders where id = 1'"

REMEDIES = [
    R(2, "sudo systemctl restart nginx", NGINX),
    R(2, "sudo -n systemctl restart nginx.service", NGINX),
    R(2, "sudo systemctl start stock", ACTIVE, "active", IS_DOWN),
    R(2, "systemctl is-active -q stock || sudo systemctl start stock", ACTIVE, "active", IS_DOWN),
    R(2, "sudo systemctl reload nginx", WORKERS),
    R(2, "sudo systemctl try-restart stock", STOCK),
    R(2, "sudo systemctl reload-or-restart nginx", WORKERS),
    R(2, "sudo systemctl daemon-reload", RELOADED, "no", EDITED),
    R(2, "sudo systemctl daemon-reload && sudo systemctl restart stock", STOCK),
    R(2, "sudo systemctl reset-failed backup.service", FAILED, "inactive", FAILS),
    R(2, "sudo systemctl reset-failed", FAILED, "inactive", FAILS),
    R(2, "sudo systemctl start fill", FILLED),
    R(
        2,
        "sudo systemctl start fill.timer",
        "systemctl is-active fill.timer",
        "active",
        "systemctl stop fill.timer",
    ),
    R(2, "sudo service nginx restart", NGINX),
    R(2, "sudo service nginx reload", WORKERS),
    R(2, "sudo /etc/init.d/nginx restart", NGINX),
    R(2, "sudo systemctl restart stock.service nginx.service", STOCK),
    R(2, "sudo systemctl stop stock && sleep 1 && sudo systemctl start stock", STOCK),
    R(2, "sudo systemctl kill -s HUP stock", HUPS),
    R(2, "for unit in stock nginx; do sudo systemctl restart $unit; done", STOCK),
    R(2, "sudo systemctl restart postgresql", POSTGRES),
    R(2, "sudo systemctl restart cron && systemctl status cron --no-pager", CRON),
    R(2, "/usr/bin/sudo /bin/systemctl restart stock", STOCK),
    R(2, "sudo bash -c 'systemctl restart stock'", STOCK),
    R(2, "sudo pg_ctlcluster 15 main restart", POSTGRES),
    R(2, "./again.sh", STOCK),
    R(2, "bash again.sh", STOCK),
    R(2, "docker restart -t 1 db", STARTED),
    R(2, "docker start db", STATE, "running", "docker kill db"),
    R(2, "docker stop -t 1 db", STATE, "exited"),
    R(2, "docker stop -t 1 db && docker start db", STARTED),
    R(2, "docker unpause db", STATE, "running", "docker pause db"),
    R(2, "docker restart -t 1 $(docker ps -q --filter name=^db$)", STARTED),
    R(
        2,
        "docker ps -aq --filter name=^db$ | xargs -r docker start",
        STATE,
        "running",
        "docker kill db",
    ),
    R(2, "sudo docker restart -t 1 db", STARTED),
    R(2, "docker container restart -t 1 db", STARTED),
    R(2, "docker kill db; docker start db", STARTED),
    R(2, "kill $(cat /run/stock/stock.pid)", STOCK),
    R(2, "kill -HUP $(cat /run/stock/stock.pid)", HUPS),
    R(2, "kill -9 $(pgrep -o -f stock-server)", STOCK),
    R(2, "pkill -f stock-server", STOCK),
    R(2, "pkill -HUP -f stock-server", HUPS),
    R(2, "pgrep -f stock-server | xargs kill", STOCK),
    R(2, "sudo kill -9 $(cat /run/stock/stock.pid)", STOCK),
    R(2, "sudo kill $(systemctl show -p MainPID --value stock)", STOCK),
    R(2, "sudo pkill -f stock-server", STOCK),
    R(2, "sudo pkill -HUP nginx", WORKERS),
    R(2, "sudo killall -HUP nginx", WORKERS),
    R(2, "kill $(ss -tlnp | grep :8099 | sed -E 's/.*pid=([0-9]+).*/\\1/')", STOCK),
    R(2, "sudo kill $(sudo ss -tlnp | grep :8099 | sed -E 's/.*pid=([0-9]+).*/\\1/')", STOCK),
    R(2, "sudo nginx -t && sudo nginx -s reload", WORKERS),
    R(2, "sudo kill -HUP `cat /run/nginx.pid`", WORKERS),
    R(2, "rm -rf /var/cache/stock/*", CACHED, "0", FULL_CACHE),
    R(2, "find /var/cache/stock -type f -mtime +7 -delete", OLD, "0", FULL_CACHE),
    R(2, "truncate -s 0 /var/log/stock/app.log", SIZE, "0", LOGGED),
    R(2, ": > /var/log/stock/app.log", SIZE, "0", LOGGED),
    R(
        2,
        "rm -f tmp/*.lock",
        "ls $LAB/tmp | wc -l",
        "0",
        "touch $LAB/tmp/a.lock; chown $OWNER: $LAB/tmp/a.lock",
    ),
    R(2, "sed -i 's/workers = 0/workers = 2/' config/app.ini", CONFIG, GOOD, BAD),
    R(2, "cp config/app.ini.bak config/app.ini", CONFIG, GOOD, BAD),
    R(2, "git checkout -- config/app.ini", CONFIG, GOOD, BAD),
    R(2, "git restore config/app.ini", CONFIG, GOOD, BAD),
    R(2, "tar xzf backup.tgz config/app.ini", CONFIG, GOOD, BAD),
    R(2, "cat > config/app.ini <<'X'\n[app]\nworkers = 2\nX", CONFIG, GOOD, BAD),
    R(2, "echo 'workers = 2' | tee config/app.ini", CONFIG, GOOD, BAD),
    R(
        2,
        "python3 -c \"open('config/app.ini', 'w').write('[app]\\nworkers = 2\\n')\"",
        CONFIG,
        GOOD,
        BAD,
    ),
    R(
        2,
        "chmod 640 config/app.ini",
        "stat -c %a $LAB/config/app.ini",
        "640",
        "chmod 600 $LAB/config/app.ini",
    ),
    R(
        2,
        "ln -sfn releases/2 current && sudo systemctl restart stock",
        "readlink $LAB/current",
        "releases/2",
        "ln -sfn releases/1 $LAB/current; chown -h $OWNER: $LAB/current",
    ),
    R(
        2,
        "mkdir -p /var/cache/stock/images",
        "ls -d /var/cache/stock/images",
        "/var/cache/stock/images",
        "rm -rf /var/cache/stock/*",
    ),
    R(
        2,
        "mv /var/log/stock/app.log /var/log/stock/app.log.1 && sudo systemctl kill -s HUP stock",
        HUPS,
    ),
    R(
        2,
        "sudo logrotate -f /etc/logrotate.d/stock",
        "ls /var/log/stock/app.log.1",
        "/var/log/stock/app.log.1",
        "rm -f /var/log/stock/*.1; seq 9 > /var/log/stock/app.log",
    ),
    R(
        2,
        "sudo rm -rf /var/cache/stock/rooted",
        "ls /var/cache/stock | grep -c rooted",
        "0",
        "install -d -m 700 /var/cache/stock/rooted",
    ),
    R(
        2,
        "sudo truncate -s 0 /var/log/stock/root.log",
        "stat -c %s /var/log/stock/root.log",
        "0",
        "seq 9 > /var/log/stock/root.log",
    ),
    R(
        2,
        "sudo find /var/cache/stock -type f -mtime +7 -delete",
        OLD,
        "0",
        f"{FULL_CACHE}chown -R root: /var/cache/stock/a",
    ),
    R(2, "ssh nas sudo systemctl restart nginx", NGINX),
    R(2, "ssh nas 'sudo systemctl restart nginx && systemctl is-active nginx'", NGINX),
    R(2, "ssh -o ConnectTimeout=5 nas docker restart -t 1 db", STARTED),
    R(2, "curl -fsS -X POST http://127.0.0.1:8099/reload", POSTS),
    R(2, "curl -s http://127.0.0.1:8099/cache/clear -d ''", POSTS),
    R(
        3,
        "sudo sed -i /bogus/d /etc/nginx/conf.d/shop.conf && sudo systemctl reload nginx",
        IS_BOGUS,
        "0",
        BOGUS,
    ),
    R(
        3,
        "echo '# fine' | sudo tee /etc/nginx/conf.d/shop.conf > /dev/null && sudo nginx -t",
        IS_BOGUS,
        "0",
        BOGUS,
    ),
    R(3, "sudo cp config/app.ini.bak /etc/nginx/conf.d/shop.conf", IS_BOGUS, "0", BOGUS),
    R(
        3,
        "sudo rm -f /etc/nginx/conf.d/shop.conf && sudo systemctl restart nginx",
        NGINX,
        CHANGES,
        BOGUS,
    ),
    R(
        3,
        "sudo mv /etc/nginx/conf.d/shop.conf /etc/nginx/conf.d/shop.off",
        "ls /etc/nginx/conf.d",
        "shop.off",
        BOGUS,
    ),
    R(
        3,
        "sudo sysctl -w net.core.somaxconn=1024",
        "cat /proc/sys/net/core/somaxconn",
        "1024",
        "echo 512 > /proc/sys/net/core/somaxconn",
    ),
    R(3, "sudo mount /mnt/backup", MOUNTED, "on", "umount -q /mnt/backup"),
    R(
        3,
        "sudo umount /mnt/backup",
        MOUNTED,
        "off",
        "mountpoint -q /mnt/backup || mount /mnt/backup",
    ),
    R(
        3,
        "sudo systemctl enable --now fill.timer",
        TIMER,
        "enabled",
        "systemctl disable -q --now fill.timer",
    ),
    R(
        3,
        "sudo systemctl disable --now fill.timer",
        TIMER,
        "disabled",
        "systemctl enable -q --now fill.timer",
    ),
    R(
        3,
        "sudo systemctl unmask cron",
        "systemctl is-enabled cron",
        "enabled",
        "systemctl mask -q cron",
    ),
    R(
        3,
        "sudo chown root:root /var/cache/stock/a",
        "stat -c %U /var/cache/stock/a",
        "root",
        FULL_CACHE,
    ),
    R(
        3,
        "docker exec db sh -c 'echo x > /tmp/flag'",
        "docker exec db ls /tmp",
        "flag",
        "docker rm -f db; docker run -d --name db lab/busybox:1 sleep 1000000",
    ),
    R(
        3,
        "docker run -d --name extra lab/busybox:1 sleep 1000",
        "docker inspect -f '{{.State.Status}}' extra",
        "running",
        "docker rm -f extra",
    ),
    R(
        3,
        "docker rm -f extra",
        "docker ps -aq --filter name=extra | wc -l",
        "0",
        "docker inspect extra > /dev/null || docker run -d --name extra lab/busybox:1 sleep 1000",
    ),
    R(
        3,
        "docker update --restart unless-stopped db",
        "docker inspect -f '{{.HostConfig.RestartPolicy.Name}}' db",
        "unless-stopped",
        "docker update --restart no db",
    ),
    R(
        3,
        "git commit -qam 'Set workers'",
        "git -C $LAB -c safe.directory='*' log -1 --format=%s",
        "Set workers",
        "date +'# %N' >> $LAB/config/app.ini",
    ),
    R(
        3,
        "sudo -u postgres psql -d shop -c \"update orders set state = 'new' where id = 1\"",
        ORDER,
        "new",
        "runuser -u postgres -- psql -qd shop -c \"update orders set state = 'old' where id = 1\"",
    ),
    R(
        3,
        "psql shop -c \"update orders set state = 'new' where id = 1\"",
        ORDER,
        "new",
        "runuser -u postgres -- psql -qd shop -c \"update orders set state = 'old' where id = 1\"",
    ),
    R(
        3,
        "redis-cli set greeting again",
        "redis-cli get greeting",
        "again",
        "redis-cli set greeting hello",
    ),
    R(
        3,
        "scp config/app.ini.bak nas:/tmp/app.ini",
        "ls /tmp/app.ini",
        "/tmp/app.ini",
        "rm -f /tmp/app.ini",
    ),
    R(
        3,
        "rsync -a releases/ nas:/tmp/releases/",
        "ls /tmp/releases | wc -l",
        "2",
        "rm -rf /tmp/releases",
    ),
]
REFUSED = [
    (2, "sudo sh -c 'systemctl stop stock; systemctl start stock'"),
    (2, "sudo fuser -k 8099/tcp"),
    (2, "sudo -u postgres psql -d shop -c 'drop table orders'"),
    (3, "sudo bash -c 'echo \"# fine\" > /etc/nginx/conf.d/shop.conf'"),
    (3, "sudo useradd mallory"),
    (3, "sudo reboot"),
    (3, "echo '5 4 * * * /bin/true' | crontab -"),
]
"""Rules: a shell behind sudo, signals by socket, lost data, users, the host, later commands."""


class Player:
    """Plays commands as a user, and looks at the lab as root."""

    def __init__(self, lab: HomeLab, user: str, process: subprocess.Popen[str]) -> None:
        home = "/root" if user == "root" else f"/home/{user}"
        self._names = [f"OWNER={user}", f"LAB={home}/lab"]
        self._lab, self._process = lab, process
        assert self._answer_to(GRANTS) == "ready"

    def play(self, tier: int, command: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._answer_to({"tier": tier, "command": command})
        return answer

    def by_hand(self, script: str) -> str:
        return self._lab.run(["env", *self._names, "bash", "-c", script], seconds=60).stdout.strip()

    def problem_with(self, remedy: Remedy) -> str:
        """Return what the remedy answered if it had no effect; empty if it worked."""
        self.by_hand(HEAL)
        self.by_hand(remedy.before)
        before = self.by_hand(remedy.probe)
        assert before != remedy.wanted, f"{remedy.command}: nothing was broken"
        answer = self.play(remedy.tier, remedy.command)
        until = time.monotonic() + EFFECT_SECONDS
        while not self._has_worked(remedy, before):
            if time.monotonic() > until:
                return f"no effect ({before}): {answer}"
            time.sleep(0.2)
        return "" if answer["code"] == 0 else f"{answer}"

    def _has_worked(self, remedy: Remedy, before: str) -> bool:
        now = self.by_hand(remedy.probe)
        if remedy.wanted == CHANGES:
            return now not in {before, "", "0"}
        return now == remedy.wanted

    def _answer_to(self, asked: object) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{json.dumps(asked)}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def playing(lab: HomeLab, user: str) -> Iterator[Player]:
    python = PROJECT / ".venv/bin/python"
    script = f"cd {PROJECT} && exec {python} -B -m tests.homelab.play_remedies"
    with subprocess.Popen(
        lab.argv(["bash", "-c", script], user),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    ) as process:
        yield Player(lab, user, process)


@pytest.fixture(scope="module")
def furnished(lab: HomeLab) -> HomeLab:
    done = lab.run(["bash", "-eu", str(Path(__file__).parent / "remedies.sh")])
    assert done.returncode == 0, done.stderr
    return lab


@pytest.mark.parametrize("user", ["root", OPERATOR])
def test_remedies_have_their_effect(furnished: HomeLab, user: str) -> None:
    with playing(furnished, user) as player:
        problems = {remedy.command: player.problem_with(remedy) for remedy in REMEDIES}

    broken = {command: problem for command, problem in problems.items() if problem}
    report = "\n\n".join(f"$ {command}\n{problem}" for command, problem in broken.items())
    assert len(problems) == len(REMEDIES) >= 75
    assert len(broken) <= MOST_BROKEN * len(REMEDIES), report


@pytest.mark.parametrize("user", ["root", OPERATOR])
def test_rules_refuse_with_a_reason(furnished: HomeLab, user: str) -> None:
    with playing(furnished, user) as player:
        answers = {command: player.play(tier, command) for tier, command in REFUSED}

    assert [command for command, answer in answers.items() if not answer["denied"]] == []
    assert [command for command, answer in answers.items() if answer["code"] == 0] == []
