"""Every program that must be known is known, and no words bring a grammar down."""

from __future__ import annotations

import ast
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from escalation.command_policy import programs
from escalation.command_policy.grants import NAMES
from escalation.command_policy.programs import GRAMMARS, understand
from escalation.command_policy.understanding import NEVER, Understanding
from tests.tables import each_row

MUST_BE_KNOWN = """
    docker podman docker-compose systemctl service journalctl loginctl hostnamectl timedatectl
    systemd-analyze busctl git gh kubectl helm ansible ansible-playbook terraform tofu ssh scp
    rsync curl wget dig host nslookup getent whois ping traceroute tracepath mtr nc openssl nmap
    redis-cli psql mysql mariadb sqlite3 pg_isready mysqladmin etcdctl ls cat head tail less more
    wc sort uniq cut tr nl tac rev paste join comm diff cmp md5sum sha256sum stat file du df free
    uptime uname hostname id whoami who w last date cal printenv echo printf test [ true false
    sleep seq basename dirname realpath readlink pwd cd pushd popd type which whereis man ps top
    pgrep pidof pstree lsof ss netstat ip iostat vmstat mpstat sar lscpu lsblk lsusb lspci blkid
    mount findmnt zcat gzip bzcat xzcat tar jq yq grep egrep fgrep rg awk sed python3 column fold
    xxd od hexdump strings nproc arch getconf locale crontab dmesg dpkg dpkg-query apt apt-cache
    apt-get rpm pip snap npm nginx apachectl smartctl sensors zpool zfs mdadm rm cp mv tee touch
    mkdir rmdir ln chmod chown truncate dd install patch unzip kill pkill killall dnf umount
    reboot shutdown mkfs useradd passwd iptables nft ufw certbot export set unset read local
    declare exit return break continue wait shift : trap
"""
LEFT_TO_THE_ROOM = "aws gcloud az mongosh k9s make perl ruby node vim systemd-run sftp telnet"
ODD_WORDS = """
    -c -e -f -o -v -X -i --all -- - = @x :x x: /tmp/x .. ps get run exec push status rm show
    --5 -1 0 list api -n -s SELECT s/a/b/ {print} -xzf +main http://x compose container
"""
WORDS = st.one_of(
    st.none(),
    st.text(max_size=12),
    st.sampled_from(ODD_WORDS.split()),
)


def test_the_registry_covers_the_programs_of_every_day():
    assert [name for name in MUST_BE_KNOWN.split() if name not in GRAMMARS] == []


def test_what_cannot_be_held_by_reading_its_words_is_left_to_the_room():
    assert [name for name in LEFT_TO_THE_ROOM.split() if name in GRAMMARS] == []


def test_an_unknown_program_and_no_program_are_not_understood():
    assert understand(("no-such-program", "x")) is None
    assert understand((None, "x")) is None
    assert understand(()) is None


def test_no_program_has_two_grammars():
    """A later module would silently take an earlier one's place."""
    folder = Path(programs.__file__).parent
    named = [
        name
        for module in folder.glob("*.py")
        if module.name not in ("__init__.py", "wrappers.py")
        for name in getattr(
            __import__(f"escalation.command_policy.programs.{module.stem}", fromlist=["x"]),
            "GRAMMARS",
            {},
        )
    ]

    assert sorted(named) == sorted(set(named))


def test_grammars_do_nothing_but_read():
    """No module of the command policy opens files, starts processes or uses the network."""
    forbidden = {"os", "subprocess", "pathlib", "socket", "io", "shutil", "tempfile"}
    for module in Path(programs.__file__).parent.glob("*.py"):
        tree = ast.parse(module.read_text())
        imported = {
            alias.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in (*node.names, ast.alias(getattr(node, "module", "") or ""))
        }
        assert not imported & forbidden, module.name


LONG = 99_000
SLOW_TO_READ = {
    "awk": ("awk", "print " * (LONG // 6)),
    "sed": ("sed", "s/a/b/;" * (LONG // 7)),
    "sed, open": ("sed", "s/" + "[" * (LONG - 9)),
    "psql, names": ("psql", "-h", "d", "-c", "select " + "a" * (LONG - 99)),
    "psql, words": ("psql", "-h", "d", "-c", "copy " * (LONG // 6)),
    "psql, blanks": ("psql", "-h", "d", "-c", "select a" + " " * (LONG - 99)),
    "kill": ("kill", "9" * LONG),
    "pkill": ("pkill", "a " * (LONG // 2 - 9) + "!"),
    "ssh": ("ssh", "-J", "a." * (LONG // 2 - 99) + "!", "h", "x"),
    "docker": ("docker", "rm", *["-a"] * (LONG // 2 - 99)),
}


@each_row("argv", SLOW_TO_READ.values(), ids=SLOW_TO_READ)
def test_long_words_are_read_in_time(argv):
    """Linear takes some milliseconds here, quadratic takes seconds."""
    started = time.process_time()
    understand(argv)

    assert time.process_time() - started < 0.75


def test_words_without_measure_are_not_read():
    assert understand(("echo", "x" * 200_000)) is None


@given(st.sampled_from(sorted(GRAMMARS)), st.lists(WORDS, max_size=7))
def test_no_words_bring_a_grammar_down(program, words):
    found = understand((program, *words))

    assert found is None or is_sound(found)


def is_sound(found: Understanding) -> bool:
    return (
        1 <= found.level <= NEVER
        and found.grants <= set(NAMES)
        and bool(found.action)
        and (found.level == 1 or bool(found.why))
        and not (found.runs_unseen and found.grants)
    )


@each_row("program", sorted(GRAMMARS))
def test_computed_words_alone_never_open_keys_or_the_bus(program):
    """`ssh $x`, `kubectl $x`, `systemctl $x`: nobody knows what that does."""
    for count in (1, 2, 3):
        found = understand((program, *[None] * count))

        keys = {"ssh", "kube", "bus", "network"}
        assert found is None or found.level > 1 or not found.grants & keys
