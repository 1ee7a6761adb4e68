"""Readers, filters and git on another host."""

from __future__ import annotations

from escalation.command_policy.understanding import FULL, LOOK, NEVER, SAFE
from tests.escalation.command_policy.vectors import (
    Row,
    assert_is,
    assert_not_understood,
    judge,
    understood,
)
from tests.tables import each_row


@each_row(
    "command",
    [
        "cat /etc/hosts",
        "tail -n 5 app.log",
        "grep -n error /var/log/syslog",
        "grep -rn error /var/log/nginx",
        "egrep -i 'a|b' f",
        "sort -k2 -nr data.csv",
        "uniq -c",
        "find /srv -name '*.log' -mtime -1",
        "diff -u a b",
        "date -u +%F",
        "rpm -qa",
        "rpm -qi bash",
        "jq -r .a f",
        "blkid -o list",
    ],
)
def test_reading_is_a_look(command):
    assert_is(Row(command, command.split()[0], LOOK))


@each_row(
    "command",
    [
        "sort --compress-program=evil f",
        "sort --compress-prog=evil -S1 f",
        "sort --files0-from=/etc/shadow",
        "find / -exec reboot +",
        "find / -execdir reboot +",
        "find / -ok reboot +",
        "find /srv -delete -exec reboot ;",
        "find /srv -fprintf /etc/x y",
        "find -files0-from x",
        "diff -r /root /srv",
        "date -s 10:00",
        "date 01010000",
        "rpm -i evil.rpm",
        "rpm -q --eval '%(evil)'",
        "awk '{print}' f",
        "xargs rm",
        "python3 -c 1",
        "env A=1 ls",
        "A=1 ls",
        "tar -xf x",
        "less f",
        "vi f",
        "xz -t -d f",
        "nohup ls",
    ],
)
def test_what_writes_or_starts_something_is_not_understood(command):
    assert_not_understood(command, elsewhere=True)


@each_row(
    "command",
    [
        "grep -r key /root",
        "grep -Rn key",
        "grep -nr key /",
        "grep --recursive key /home/me",
        "grep -r key /var/log/../../root",
        "grep -r key root",
        "grep -d recurse key /root",
    ],
)
def test_a_whole_directory_that_may_hold_keys_needs_tier_3(command):
    assert_is(Row(command, "grep", FULL))


@each_row(
    ("command", "written"),
    [("sort -o x y", ("x",)), ("uniq a b", ("b",)), ("sort x", ()), ("uniq a", ())],
)
def test_a_filter_that_writes_a_file_says_so(command, written):
    assert understood(command).writes == written


GIT = [
    ("git status --short", "git status", LOOK),
    ("git -C /srv/app --no-pager log --oneline -5", "git log", LOOK),
    ("git branch -a", "git branch", LOOK),
    ("git branch", "git branch", LOOK),
    ("git tag -l", "git tag", LOOK),
    ("git remote -v", "git remote", LOOK),
    ("git stash list", "git stash", LOOK),
    ("git --version", "git version", LOOK),
    ("git fetch origin", "git fetch", SAFE),
    ("git pull --ff-only", "git pull", FULL),
    ("git branch new", "git branch", FULL),
    ("git branch -D main", "git branch", FULL),
    ("git stash", "git stash", FULL),
    ("git reset --hard", "git reset", FULL),
    ("git push origin main", "git push", FULL),
    ("git push --force-with-lease", "git push", FULL),
    ("git push --force", "git push", NEVER),
    ("git push origin main -uf", "git push", NEVER),
    ("git push origin +main", "git push", NEVER),
    ("git push --mirror", "git push", NEVER),
]


@each_row(("command", "action", "level"), GIT)
def test_a_verb_of_git_has_its_level(command, action, level):
    assert_is(Row(command, action, level))


@each_row(
    "command",
    [
        "git -c core.pager=evil log",
        "git --exec-path=/tmp log",
        "git --config-env=core.pager=X log",
        "git deploy",
        "git config core.fsmonitor evil",
        "git log -1 --output=README.md",
        "git log -1 --outp=README.md",
        "git diff --ext-diff",
        "git grep -Oevil x",
        "git grep --open-files-in-pager=evil x",
        "git fetch --upload-pack=evil origin",
        "git fetch --upload-p=evil origin",
        "git fetch ext::evil",
        "git push --receive-pack=evil origin",
        "git push --exec=evil origin",
        "git clone --config core.fsmonitor=evil https://example.org/r",
        "git clone -c core.fsmonitor=evil https://example.org/r",
        "git submodule foreach evil",
        "git bisect run evil",
        "git difftool",
    ],
)
def test_git_that_may_run_a_program_is_not_understood(command):
    assert_not_understood(command, elsewhere=True)


@each_row(
    ("command", "inner"),
    [
        ("sh -c 'df -h; docker ps'", (("df", "-h"), ("docker", "ps"))),
        ("bash -c uptime", (("uptime",),)),
        ("timeout 5 docker restart web", (("docker", "restart", "web"),)),
        ("timeout -k 1 -s KILL 5 df", (("df",),)),
    ],
)
def test_a_program_that_runs_another_is_read_through(command, inner):
    assert understood(command, elsewhere=True).inner == inner


@each_row(
    "command",
    [
        "sh",
        "bash -s",
        "sh x.sh",
        "sh -lc ls",
        "sh -c 'ls $x'",
        "sh -c ls a",
        "timeout 5",
        "zsh -c ls",
    ],
)
def test_a_shell_with_anything_else_is_not_understood(command):
    assert_not_understood(command, elsewhere=True)


@each_row("command", ["sh -c ls", "timeout 5 ls", "bash -c ls"])
def test_here_a_shell_runs_in_the_command_sandbox(command):
    assert_not_understood(command)


SECRETS = [
    "cat /etc/shadow",
    "sudo cat /etc/shadow-",
    "cat /root/.ssh/id_ed25519",
    "head -1 .ssh/config",
    "base64 /etc/ssl/private/web.pem",
    "cat web.key",
    "grep token /root/.kube/config",
    "cat /etc/rancher/k3s/k3s.yaml",
    "cat /etc/kubernetes/admin.conf",
    "cat /home/me/.aws/credentials",
    "cat /srv/app/.env",
    "cat /proc/1/environ",
    "cd /proc/1 && cat environ",
    "cd /etc/ssl && cat private/web",
    "sort /root/.pgpass",
    "jq --slurpfile a /root/.docker/config.json .",
    "grep --file=/etc/shadow x",
    "sudo sh -c 'cat /etc/shadow'",
    "docker exec web cat /run/secrets/db",
    "scp -f /root/.ssh/id_rsa",
    "rsync --server --sender -re.L . /root/.ssh/",
]


@each_row("command", SECRETS)
def test_what_looks_like_a_secret_is_read_at_no_tier(command):
    decision = judge(f'ssh nas "{command}"', 3)

    assert (decision.verdict, decision.rule) == ("deny", "looks like a secret")


@each_row(
    "command",
    ["cat /etc/hosts", "grep secret /var/log/app.log", "cat /srv/keys.md", "ls /srv/.envrc.d"],
)
def test_other_files_are_read(command):
    assert judge(f"ssh nas {command}").verdict == "allow"


@each_row(
    "command",
    [
        "cat /dev/sda",
        "head -c 512 //dev/./nvme0n1",
        "cat ../../dev/mem",
        "cat /dev/watchdog",
        "strings /proc/kcore",
        "cat /proc/1/fd/3",
        "cat /proc/self/root/etc/hosts",
        "cd /dev",
        "cd /proc/1/root",
    ],
)
def test_devices_and_files_of_processes_are_for_no_tier(command):
    assert_is(Row(command, command.split()[0], NEVER))


@each_row("command", ["cat /srv/dev/app.log", "wc -l /dev/null", "cat /proc/meminfo", "cd /srv"])
def test_ordinary_files_near_them_are_a_look(command):
    assert_is(Row(command, command.split()[0], LOOK))


@each_row(
    ("command", "allowed"),
    [
        ("cat /root/.npmrc", False),
        ("cat /root/.bash_history", False),
        ("cat /etc/ppp/chap-secrets", False),
        ("cat /root/.config/rclone/rclone.conf", False),
        ("cat /etc/mysql/debian.cnf", False),
        ("'cd /etc/ssl; cd private; cat server'", False),
        ("curl -s http://169.254.169.254/latest/", False),
        ("curl -s http://0xa9fea9fe/", False),
        ("curl -s http://2852039166/", False),
        ("curl -s http://127.0.0.1:2375/info", False),
        ("curl -s http://127.0.0.1:8080/health", True),
        ("curl -s http://10.0.0.7/", True),
        ("'cd /var/log; tail -n 3 syslog'", True),
        ("grep secret /var/log/syslog", True),
    ],
)
def test_keys_and_credentials_of_another_host_stay_there(command, allowed):
    assert judge(f"ssh nas {command}").is_denied != allowed
