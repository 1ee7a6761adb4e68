"""Programs of systemd: units, journal, sessions, host name, clock."""

from __future__ import annotations

import re

from escalation.command_policy.grants import BUS, NETWORK
from escalation.command_policy.programs.options import Grammar, acts, literal, looks, read
from escalation.command_policy.understanding import FULL, LOOK, NEVER, SAFE, Understanding, Word

# Left out everywhere: -H and -M, which go to another machine, and --root, --image.
SYSTEMCTL = """
    --user --system -t= --type= --state= -p= --property= -P= --value -a --all -l --full -q --quiet
    --no-pager --no-legend --legend= --plain --failed --now -f --force -n= --lines= -o= --output= -r
    --recursive --no-block --no-wall --reverse --after --before --with-dependencies --show-types
     -s= --signal= --kill-who= --kill-whom= --what= --runtime --no-reload
    --no-ask-password --wait -T --show-transaction --dry-run --timestamp= --version -i
    --check-inhibitors= --preset-mode= --marked --read-only --mkdir
"""
SYSTEMCTL_LEVELS = {
    LOOK: "status show cat is-active is-failed is-enabled is-system-running list-units get-default"
    " list-unit-files list-timers list-sockets list-jobs list-dependencies list-automounts"
    " list-paths list-machines show-environment help",
    SAFE: "start stop restart reload try-restart reload-or-restart try-reload-or-restart kill"
    " force-reload condrestart reset-failed reload-or-try-restart",
    FULL: "enable disable reenable mask unmask preset preset-all daemon-reload daemon-reexec revert"
    " add-wants add-requires set-property unset-environment cancel freeze thaw"
    " log-level log-target service-watchdogs set-default",
    NEVER: "reboot poweroff halt kexec exit suspend hibernate hybrid-sleep switch-root emergency"
    " suspend-then-hibernate soft-reboot rescue default isolate clean bind mount-image"
    " link set-environment import-environment",
}
SYSTEMCTL_VERBS = {
    verb: level for level, verbs in SYSTEMCTL_LEVELS.items() for verb in verbs.split()
}
ENDS_THE_SYSTEM = re.compile(
    r"(?:reboot|poweroff|halt|kexec|shutdown|rescue|emergency|exit|suspend|hibernate|hybrid-sleep"
    r"|sleep|ctrl-alt-del|runlevel[016]|debug-shell|systemd-(?:reboot|poweroff|halt|kexec|exit|soft-"
    r"reboot|suspend|hibernate)|soft-reboot|init|systemd-update-done)(?:\.|\Z)"
)
# A path is a mount, too.
MANY_AT_ONCE = re.compile(r"[*?\[/]|\.(?:slice|target|scope|mount|swap|device)\Z")
PLAIN_NAME = re.compile(r"[\w@:][\w@:.-]*\Z")
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
JOURNAL_CHANGES = (
    *("--vacuum-size", "--vacuum-time", "--vacuum-files", "--rotate", "--flush", "--sync"),
    *("--relinquish-var", "--smart-relinquish-var", "--update-catalog"),
)
PLAIN = """
    --no-pager --no-legend --full -l -a --all -p= --property= --value -n= --lines= -o= --output=
    --no-ask-password --static --transient --pretty -q --quiet --user --system --json= -j --list
    --plain --order --require --fuzz= --iterations= -4 -6 -t= --type= --interface= --legend=
    --acquired --activatable --unique
"""
CHANGES = "changes the system's settings"
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
        "hostname set-hostname icon-name chassis deployment location set-deployment set-location",
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
    "busctl": ("list", "list status tree introspect get-property monitor", "set-property"),
    "networkctl": ("list", "list status lldp label", "up down reload reconfigure renew delete"),
    "resolvectl": (
        "status",
        "status query service statistics show-cache show-server-state",
        "flush-caches reset-statistics dns domain revert log-level reset-server-features",
    ),
    "coredumpctl": ("list", "list info", ""),
}


def systemctl(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], SYSTEMCTL)
    if line is None:
        return None
    if line.has("--version"):
        return looks(argv)
    verb, units = (line.operands or ("list-units",))[0], line.operands[1:]
    level = SYSTEMCTL_VERBS.get(verb or "")
    if verb is None or level is None:
        return None
    names = literal(units)
    if level != LOOK and (names is None or line.unsure):
        return None
    if level in (SAFE, FULL) and any(map(ENDS_THE_SYSTEM.match, names or ())):
        level = NEVER
    if level == FULL and any("/" in name for name in names or ()):
        level = NEVER  # A unit file of choice, which runs as root.
    if level == SAFE and any(map(MANY_AT_ONCE.search, names or ())):
        level = FULL
    rest = (*units, *_options(argv, line.operands))
    return acts(f"systemctl {verb}", rest, level, _why(level), BUS)


def _options(argv: tuple[Word, ...], operands: tuple[Word, ...]) -> tuple[Word, ...]:
    return tuple(word for word in argv[1:] if word not in operands)


def _why(level: int) -> str:
    return {
        LOOK: "",
        SAFE: "starts, stops or restarts a unit",
        FULL: "changes what runs from now on",
        NEVER: "ends or empties the whole system, or runs what it likes as root",
    }[level]


def service(argv: tuple[Word, ...]) -> Understanding | None:
    """Read service, which runs a script whose path begins with the name."""
    words = literal(argv[1:])
    if not words or not (words[0] == "--status-all" or PLAIN_NAME.match(words[0])):
        return None
    match words:
        case ("--status-all",):
            return looks(argv, BUS)
        case (name, "status"):
            return acts("service", (name, "status"), LOOK, "", BUS)
        case (name, "start" | "stop" | "restart" | "reload" | "force-reload" as verb):
            level = NEVER if ENDS_THE_SYSTEM.match(name) else SAFE
            return acts("service", (name, verb), level, _why(level), BUS)
    return None


def journalctl(argv: tuple[Word, ...]) -> Understanding | None:
    """Read journalctl; computed words only filter, unless they may be options."""
    line = read(argv[1:], JOURNALCTL)
    if line is None or line.unsure:
        return None
    if line.has(*JOURNAL_CHANGES):
        return acts("journalctl", argv[1:], FULL, "removes or rotates the journal", BUS)
    return looks(argv, BUS)


def by_table(argv: tuple[Word, ...]) -> Understanding | None:
    program = str(argv[0])
    assumed, looking, changing = TABLES[program]
    line = read(argv[1:], PLAIN)
    if line is None or line.unsure:
        return None
    verb, rest = (line.operands or (assumed,))[0], line.operands[1:]
    grants = (BUS, NETWORK) if program in ("networkctl", "resolvectl") else (BUS,)
    if program == "hostnamectl" and verb == "hostname" and not rest:
        return acts("hostnamectl hostname", rest, LOOK, "", *grants)
    if verb in looking.split():
        return acts(f"{program} {verb}", rest, LOOK, "", *grants)
    if verb in changing.split():
        return acts(f"{program} {verb}", rest, FULL, CHANGES, *grants)
    return None


GRAMMARS: dict[str, Grammar] = {
    "systemctl": systemctl,
    "service": service,
    "journalctl": journalctl,
    **dict.fromkeys(TABLES, by_table),
}
