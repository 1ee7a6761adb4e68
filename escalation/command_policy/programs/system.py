"""State of the host and its changes: processes, kernel, disks, mounts, users."""

from __future__ import annotations

import re

from escalation.command_policy.grants import HOST, NETWORK, PROCESSES
from escalation.command_policy.programs.network import asks
from escalation.command_policy.programs.options import (
    Grammar,
    acts,
    literal,
    looks,
    names,
    read,
    readers,
)
from escalation.command_policy.understanding import FULL, NEVER, SAFE, Understanding, Word

DMESG = """
    -T -H -k -u -x -e -l= -f= -r -t -w -L? -S -P --ctime --human --kernel --userspace --decode
    --reltime --level= --facility= --raw --notime --follow --time-format= --color? --nopager
    --since= --until=
"""
FIREWALL_LISTS = (
    "-L -S -n -v -x -t= --list --list-rules --numeric --verbose --line-numbers --table="
)
VOLUMES = "-a -v -o= --all --noheadings --units= --separator= --options="
PKILL = """
    -a -l -f -c -i -n -o -v -w -x -L -d= -g= -G= -P= -s= -t= -u= -U= -F= -r= --full --exact
    --count --list-name --list-full --newest --oldest --parent= --euid= --uid= --ignore-case
    --inverse --delimiter= -e --echo
    --signal= -H
"""
PROCESS_ID = re.compile(r"-?[0-9]{1,10}\Z")
NAMES_A_PROGRAM = re.compile(r"(?=.*\w{3})[\w ./:@=-]+\Z")
SIGNALS = frozenset(
    f"-{prefix}{name}"
    for prefix in ("", "SIG")
    for name in names("HUP INT QUIT KILL TERM USR1 USR2 STOP CONT WINCH 1 2 3 9 10 12 15 18 19 28")
)


def signals(argv: tuple[Word, ...]) -> Understanding | None:
    """Read kill. A sandbox cannot reach processes of the host, and they may be the supervisor's;
    all processes at once (-1, pid 1) are never allowed."""
    words = literal(argv[1:])
    if words is None:
        return None
    if words[:1] in (("-l",), ("-L",)):
        return looks(argv)
    if words[:1] == ("-0",):
        return looks(argv, PROCESSES)
    targets = [word for word in _after_signal(words) if word != "--"]
    if not targets or not all(map(PROCESS_ID.match, targets)):
        return None
    level = NEVER if any(int(word) in (-1, 0, 1) for word in targets) else FULL
    return acts("kill", argv[1:], level, "ends processes of the host", HOST)


def _after_signal(words: tuple[str, ...]) -> tuple[str, ...]:
    if words[:1] in (("-s",), ("-n",), ("--signal",)):
        return words[2:]
    return words[1:] if words and words[0] in SIGNALS else words


def signals_by_name(argv: tuple[Word, ...]) -> Understanding | None:
    words = literal(argv[1:])
    if words is None:
        return None
    kept = tuple(word for word in words if word not in SIGNALS)
    line = read(kept, PKILL if argv[0] == "pkill" else "-e -I -q -r -v -w -s= -u= --signal=")
    if line is None or not (line.operands or line.options):
        return None
    named = line.operands and all(NAMES_A_PROGRAM.match(word or "") for word in line.operands)
    level = FULL if named and not line.has("-v", "--inverse", "-I") else NEVER
    return acts(str(argv[0]), argv[1:], level, "ends processes of the host", HOST)


def lsof(argv: tuple[Word, ...]) -> Understanding | None:
    """Read lsof without -D, which writes a file. Connections need the grant network, too."""
    flags = [word for word in argv[1:] if word is not None and word.startswith("-")]
    if any("D" in flag for flag in flags):
        return None
    connections = any("i" in flag for flag in flags)
    return looks(argv, PROCESSES, NETWORK) if connections else looks(argv, PROCESSES)


def sysctl(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], "-a -n -e -N -r= --all --values --names --pattern=")
    words = literal(line.operands) if line else None
    if line and not line.unsure and words is not None and not any("=" in word for word in words):
        return looks(argv)
    return acts("sysctl", argv[1:], FULL, "changes the kernel's settings", HOST)


def on_host(level: int, why: str, starting: str = "") -> Grammar:
    """Return a grammar for programs that change the host. Options that match `starting`, which run
    programs, are not understood."""

    def grammar(argv: tuple[Word, ...]) -> Understanding | None:
        if starting and any(re.match(starting, word or "") for word in argv[1:]):
            return None
        return acts(str(argv[0]), argv[1:], level, why, HOST)

    return grammar


def looking_on_host(options: str) -> Grammar:
    """Return a grammar for programs that only read, but need the host."""
    return asks(options, HOST)


def mount(argv: tuple[Word, ...]) -> Understanding | None:
    """Read mounts of fstab. Other mounts could show what a sandbox hides, or replace files."""
    if argv[1:] in ((), ("-l",), ("-v",)) or (argv[1:2] == ("-t",) and len(argv) == 3):
        return looks(argv)
    if any("fuse" in (word or "") for word in argv[1:]):
        return None  # Its source may name a program.
    line = read(argv[1:], "-a -v --all --verbose")
    words = literal(line.operands) if line else None
    if line and words is not None and len(words) == (0 if line.has("-a", "--all") else 1):
        return acts("mount", argv[1:], FULL, "changes what is mounted", HOST)
    return acts("mount", argv[1:], NEVER, "mounts what the host's own table does not name", HOST)


def firewall(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], FIREWALL_LISTS)
    lists = line is not None and line.has("-L", "--list", "-S", "--list-rules")
    if argv[0] == "nft" and argv[1:2] == ("list",):
        # It joins its words; a semicolon begins another command.
        plain = all(word and re.fullmatch(r"\w[\w.-]*", word) for word in argv[2:])
        return looks(argv, HOST) if plain else None
    if line is not None and lists and not line.unsure and len(line.operands) <= 1:
        return looks(argv, HOST)
    return on_host(FULL, "changes the firewall", starting="-M|--mod")(argv)


def swapon(argv: tuple[Word, ...]) -> Understanding | None:
    if argv[1:] in (("--show",), ("-s",), ("--summary",)):
        return looks(argv)
    return on_host(FULL, "changes the host itself")(argv)


def logrotate(argv: tuple[Word, ...]) -> Understanding | None:
    """Read logrotate with the configuration of the host: others could name programs."""
    line = read(argv[1:], "-f -v -d --force --verbose --debug")
    if line is None or not all(
        (word or "").startswith("/etc/logrotate.") for word in line.operands
    ):
        return None
    return acts("logrotate", argv[1:], FULL, "changes the host itself", HOST)


def crontab(argv: tuple[Word, ...]) -> Understanding | None:
    """Read crontab, which is setgid and does not work in a sandbox."""
    line = read(argv[1:], "-l -u= -r -i")
    if line and not line.unsure and line.has("-l") and not line.has("-r") and not line.operands:
        return looks(argv, HOST)
    if line and not line.unsure and line.has("-r") and not line.operands:
        return acts("crontab", argv[1:], FULL, "changes what runs by the clock", HOST)
    return acts("crontab", argv[1:], NEVER, "runs commands later outside of any sandbox", HOST)


def nginx(argv: tuple[Word, ...]) -> Understanding | None:
    """Read nginx without a configuration file, which can load code."""
    line = read(argv[1:], "-t -T -v -V -q -h -s=")
    if line is None or line.operands or line.unsure:
        return None
    asked = line.values("-s")
    if asked:
        level = SAFE if asked == ("reload",) or asked == ("reopen",) else FULL
        return acts("nginx -s", argv[1:], level, "signals the web server", HOST)
    return looks(argv) if line.options else None


def apache(argv: tuple[Word, ...]) -> Understanding | None:
    match argv[1:]:
        case ("-t" | "-v" | "-V" | "-S" | "-M" | "configtest" | "-l",):
            return looks(argv)
        case ("graceful" | "restart" | "start" | "stop" as verb,):
            return acts(f"{argv[0]} {verb}", (), SAFE, "restarts the web server", HOST)
    return None


def top(argv: tuple[Word, ...]) -> Understanding | None:
    """Read top in batch mode: on a screen it takes commands."""
    line = read(argv[1:], "-b -c -i -H -S -n= -d= -o= -p= -u= -U= -w? -E= -e= -1 -v -h")
    return (
        looks(argv, PROCESSES)
        if line and not line.operands and line.has("-b", "-v", "-h")
        else None
    )


PLAIN_WORD = re.compile(r"[^-]|-[abd-zA-Z]+\Z")
"""No long options and no `-c`, which name files and programs."""


def verbs_on_host(looking: str, changing: str, level: int, why: str) -> Grammar:
    """Return a grammar by first word: `zpool status`, `mdadm --detail`."""

    def grammar(argv: tuple[Word, ...]) -> Understanding | None:
        verb = argv[1] if len(argv) > 1 else None
        if verb is None:
            return None
        if verb in looking.split():
            plain = all(word and PLAIN_WORD.match(word) for word in argv[2:])
            return looks(argv, HOST) if plain else None
        if verb in changing.split() and not any("hook" in (word or "") for word in argv):
            return acts(f"{argv[0]} {verb}", argv[2:], level, why, HOST)
        return None

    return grammar


DISKS = "destroys file systems or disks"
GRAMMARS: dict[str, Grammar] = {
    **readers("ps pgrep pidof pstree pmap pwdx", PROCESSES),
    "top": top,
    "lsof": lsof,
    "kill": signals,
    "pkill": signals_by_name,
    "killall": signals_by_name,
    "dmesg": looking_on_host(DMESG),
    "smartctl": looking_on_host(
        "-a -i -H -A -x -c -l= -d= -n= -j --all --info --health --scan --json"
    ),
    "mount": mount,
    "sysctl": sysctl,
    "crontab": crontab,
    "nginx": nginx,
    **dict.fromkeys(("apachectl", "apache2ctl"), apache),
    "zpool": verbs_on_host("status list iostat history get", "scrub clear online", FULL, DISKS),
    "zfs": verbs_on_host("list get", "snapshot mount", FULL, DISKS),
    "mdadm": verbs_on_host("--detail -D --examine -E", "", FULL, DISKS),
    "certbot": verbs_on_host("certificates", "renew certonly", FULL, "changes certificates"),
    "ufw": verbs_on_host(
        "status show", "enable disable allow deny delete reload", FULL, "opens ports"
    ),
    **dict.fromkeys(
        (
            "umount",
            "swapoff",
            "rmmod",
            "chsh",
        ),
        on_host(FULL, "changes the host itself"),
    ),
    **dict.fromkeys(
        ("useradd", "usermod", "userdel", "groupadd", "adduser", "deluser", "passwd", "chpasswd"),
        on_host(NEVER, "changes who may enter"),
    ),
    **dict.fromkeys(
        ("visudo", "setenforce", "update-grub"),
        on_host(FULL, "changes the firewall", starting="-M|--mod"),
    ),
    **dict.fromkeys(("iptables", "ip6tables", "nft"), firewall),
    **dict.fromkeys(("lvs", "vgs", "pvs"), looking_on_host(VOLUMES)),
    "swapon": swapon,
    "modprobe": on_host(FULL, "changes the host itself", starting="-[Cd]|--(?:config|dirname)"),
    "logrotate": logrotate,
    **dict.fromkeys(
        ("reboot", "shutdown", "poweroff", "halt", "init", "telinit", "kexec"),
        on_host(NEVER, "ends the whole system"),
    ),
    **dict.fromkeys(
        (
            "mkfs",
            "mkfs.ext4",
            "mkfs.xfs",
            "mkfs.btrfs",
            "mkswap",
            "wipefs",
            "fdisk",
            "sfdisk",
            "parted",
        ),
        on_host(NEVER, DISKS),
    ),
}
