"""Programs of systemd: units, journal, sessions, host name, clock."""

from __future__ import annotations

import re
from dataclasses import replace

from escalation.command_policy.grants import BUS
from escalation.command_policy.programs.options import Grammar, acts, by_level, looks, names, read
from escalation.command_policy.understanding import (
    EVERYTHING,
    FULL,
    LOOK,
    NEVER,
    OTHER,
    RESTART,
    SAFE,
    Argv,
    NotUnderstood,
    Understanding,
)

# Left out everywhere: -H and -M, which go to another machine, and --root, --image.
SYSTEMCTL = """
    --user --system -t= --type= --state= -p= --property= -P= --value -a --all -l --full -q --quiet
    --no-pager --no-legend --legend= --plain --failed --now -f --force -n= --lines= -o= --output= -r
    --recursive --no-block --no-wall --reverse --after --before --with-dependencies --show-types
    -s= --signal= --kill-who= --kill-whom= --runtime --no-reload --no-ask-password --wait -T
    --show-transaction --dry-run --timestamp= --version -i --check-inhibitors= --preset-mode=
"""
SYSTEMCTL_VERBS = by_level(
    {
        LOOK: """
            status show cat is-active is-failed is-enabled is-system-running list-units get-default
            list-unit-files list-timers list-sockets list-jobs list-dependencies list-automounts
            list-paths list-machines show-environment help
        """,
        SAFE: """
            start stop restart reload try-restart reload-or-restart try-reload-or-restart kill
            force-reload condrestart reset-failed reload-or-try-restart daemon-reload
        """,
        FULL: """
            enable disable reenable mask unmask preset preset-all daemon-reexec revert add-wants
            add-requires set-property unset-environment cancel freeze thaw log-level log-target
            service-watchdogs set-default
        """,
        NEVER: """
            reboot poweroff halt kexec exit suspend hibernate hybrid-sleep switch-root emergency
            suspend-then-hibernate soft-reboot rescue default isolate clean bind mount-image link
            set-environment import-environment
        """,
    }
)
RESTARTING = names("""
    restart start kill try-restart condrestart force-reload reload-or-restart
    try-reload-or-restart reload-or-try-restart
""")
ENDS_THE_SYSTEM = re.compile(
    r"(?:(?:systemd-)?(?:reboot|poweroff|halt|kexec|exit|soft-reboot|suspend|hibernate|hybrid-sleep"
    r"|suspend-then-hibernate)|shutdown|rescue|emergency|sleep|ctrl-alt-del|runlevel[016]|debug-shell"
    r"|init|systemd-update-done|initrd-switch-root|single|sendsigs|killprocs|umount(?:fs|root|nfs))"
    r"(?:\.|\Z)"
)
# A path is a mount, too.
MANY_AT_ONCE = re.compile(r"[*?\[/]|\.(?:slice|target|scope|mount|swap|device)\Z")
PLAIN_NAME = re.compile(r"[\w@:][\w@:.-]*")
WHY = {
    LOOK: "",
    SAFE: "starts, stops or restarts a unit",
    FULL: "changes what runs from now on",
    NEVER: "ends or empties the whole system, or runs what it likes as root",
}
# Left out: --cursor-file, which is written.
JOURNALCTL = """
    -0 -1 -2 -3 -4 -5 -6 -7 -8 -9 -u= -t= -p= -n? -f -r -e -x -k -b? -o= -a -q -m -S= -U= -c= -g=
    -F= -N -D= -l --unit= --user-unit= --user --system --identifier= --priority= --facility=
    --lines? --follow --reverse --pager-end --catalog --dmesg --boot? --output= --output-fields=
    --all --quiet --merge --since= --until= --cursor= --after-cursor= --show-cursor --grep=
    --case-sensitive? --field= --fields --no-pager --no-tail --no-full --full --no-hostname --utc
    --list-boots --disk-usage --header --file= --directory= --verify --version --namespace=
    --list-catalog --truncate-newline --vacuum-size= --vacuum-time= --vacuum-files= --rotate
    --flush --sync --relinquish-var --smart-relinquish-var --update-catalog
"""
JOURNAL_WRITES = ("--rotate", "--flush", "--sync")
JOURNAL_CHANGES = (
    *("--vacuum-size", "--vacuum-time", "--vacuum-files"),
    *("--relinquish-var", "--smart-relinquish-var", "--update-catalog"),
)
PLAIN = """
    --no-pager --no-legend --full -l -a --all -p= --property= --value -n= --lines= -o= --output=
    --no-ask-password --static --transient --pretty -q --quiet --user --system --json= -j --list
    --plain --order --require --fuzz= --iterations= -4 -6 -t= --type= --interface= --legend=
    --acquired --activatable --unique
"""
TABLES: dict[str, tuple[str, str, str]] = {
    # program: what is assumed without a verb, verbs that look, verbs that change
    "loginctl": (
        "list-sessions",
        "list-sessions list-users list-seats session-status show-session user-status show-user"
        " seat-status show-seat",
        "lock-session unlock-session terminate-session kill-session terminate-user kill-user"
        " enable-linger disable-linger activate lock-sessions",
    ),
    "hostnamectl": (
        "status",
        "status",
        "set-hostname icon-name chassis deployment location set-deployment set-location",
    ),
    "timedatectl": (
        "status",
        "status show list-timezones timesync-status show-timesync",
        "set-time set-timezone set-local-rtc set-ntp",
    ),
    "localectl": ("status", "status list-locales", "set-locale set-keymap"),
    "systemd-analyze": (
        "time",
        "time blame critical-chain dump calendar timespan timestamp security unit-paths unit-files"
        " cat-config verify condition exit-status",
        "set-log-level log-level set-log-target log-target service-watchdogs",
    ),
    # Left out: monitor, which prints what others say to each other, passwords too.
    "busctl": ("list", "list status tree introspect get-property", "set-property"),
    "resolvectl": (
        "status",
        "status query service statistics show-cache show-server-state",
        "flush-caches reset-statistics dns domain revert log-level reset-server-features",
    ),
    "coredumpctl": ("list", "list info", ""),
}


def systemctl(argv: Argv) -> Understanding:
    line = read(argv[1:], SYSTEMCTL)
    verb, units = (line.operands or ("list-units",))[0], line.operands[1:]
    level = SYSTEMCTL_VERBS.get(verb)
    if level is None:
        raise NotUnderstood(f"`{verb}`")
    if level in (SAFE, FULL) and any(map(ENDS_THE_SYSTEM.match, units)):
        level = NEVER
    if level == FULL and any("/" in unit for unit in units):
        level = NEVER  # A unit file of choice, which runs as root.
    if level == SAFE and any(map(MANY_AT_ONCE.search, units)):
        level = FULL
    named = set(line.operands)
    options = tuple(word for word in argv[1:] if word not in named)
    return replace(
        acts(f"systemctl {verb}", (*units, *options), level, WHY[level], BUS),
        argv=("systemctl", "--no-pager", *argv[1:]),
        kind=RESTART if verb in RESTARTING else OTHER,
        services=tuple(EVERYTHING if re.search(r"[*?\[]", unit) else unit for unit in units),
    )


def service(argv: Argv) -> Understanding:
    """Read service, which runs a script whose path begins with the name."""
    match argv[1:]:
        case ("--status-all",):
            return looks(argv, BUS)
        case (name, "status") if PLAIN_NAME.fullmatch(name):
            return looks(argv, BUS)
        case (
            name,
            "start" | "stop" | "restart" | "reload" | "force-reload" as verb,
        ) if PLAIN_NAME.fullmatch(name):
            level = NEVER if ENDS_THE_SYSTEM.match(name) else SAFE
            return replace(
                acts("service", argv[1:], level, WHY[level], BUS),
                kind=RESTART if verb in RESTARTING else OTHER,
                services=(name,),
            )
    raise NotUnderstood(f"`{' '.join(argv[1:])}`")


def journalctl(argv: Argv) -> Understanding:
    line = read(argv[1:], JOURNALCTL)
    found = looks(argv, BUS)
    if line.has(*JOURNAL_CHANGES):
        found = replace(found, level=FULL, why="removes or moves the journal")
    elif line.has(*JOURNAL_WRITES):
        found = replace(found, level=SAFE, why="writes or rotates the journal")
    return replace(found, argv=("journalctl", "--no-pager", *argv[1:]))


def by_table(argv: Argv) -> Understanding:
    program = argv[0]
    assumed, looking, changing = TABLES[program]
    line = read(argv[1:], PLAIN)
    verb, rest = (line.operands or (assumed,))[0], line.operands[1:]
    if verb in looking.split():
        return acts(f"{program} {verb}", rest, LOOK, "", BUS)
    if verb in changing.split():
        return acts(f"{program} {verb}", rest, FULL, "changes the system's settings", BUS)
    raise NotUnderstood(f"`{verb}`")


GRAMMARS: dict[str, Grammar] = {
    "systemctl": systemctl,
    "service": service,
    "journalctl": journalctl,
    **dict.fromkeys(TABLES, by_table),
}
