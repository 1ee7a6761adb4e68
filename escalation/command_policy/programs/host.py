"""Programs that run on the host itself: sudo, kernel, disks, packages, firewall, cron, signals.

They run without a sandbox, perhaps as root. So every option is named here, and none of them names a
file or a program of choice.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace

from escalation.command_policy.grants import HOST
from escalation.command_policy.plain_shell import read_commands
from escalation.command_policy.programs.options import (
    Grammar,
    acts,
    looking,
    looks,
    names,
    read,
    require,
)
from escalation.command_policy.understanding import (
    FULL,
    LOOK,
    NEVER,
    OTHER,
    RESTART,
    SAFE,
    Argv,
    NotUnderstood,
    ProcessChoice,
    Understanding,
)

PLAIN = re.compile(r"[\w.:/@+%=,-]+")


HARMLESS_VARIABLES = names("DEBIAN_FRONTEND=noninteractive LANG=C LC_ALL=C LC_ALL=C.UTF-8")
"""Given to sudo in front of a program; they are left out, because nobody is asked anything here."""


def sudo(argv: Argv) -> Understanding:
    """Read sudo and doas. Another user than root needs Tier 3."""
    if argv[1:] in (("-l",), ("-n", "-l"), ("-nl",)):
        return replace(looks(argv, HOST), argv=(argv[0], "-n", "-l"))
    line = read(argv[1:], "-n -u= --user= --non-interactive", to_operand=True)
    users = line.values("-u", "--user")
    require(users, re.compile(r"[a-z_][\w.-]*"))
    inner = line.operands
    while inner and inner[0] in HARMLESS_VARIABLES:
        inner = inner[1:]
    if not inner:
        raise NotUnderstood("no command")
    is_root = set(users) <= {"root"}
    is_plain = is_root or posixpath.basename(inner[0]) in AS_OWNER
    return Understanding(
        action=argv[0],
        arguments=argv[1:],
        level=LOOK if is_plain else FULL,
        why="" if is_plain else "acts as another user",
        grant=HOST,
        argv=(argv[0], "-n", *(() if is_root else ("-u", users[-1])), "--"),
        inner=(_without_shell(inner),),
    )


AS_OWNER = frozenset({"psql"})
"""Programs whose own level counts, also as another user: a database knows its users by name."""


def _without_shell(argv: Argv) -> Argv:
    """Return the one plain command of `sh -c`; no shell runs with a grant."""
    if posixpath.basename(argv[0]) not in ("sh", "bash", "dash") or argv[1:2] != ("-c",):
        return argv
    try:
        commands = read_commands(argv[2], redirected=False) if len(argv) == 3 else ()
    except NotUnderstood:
        commands = ()
    if len(commands) != 1:
        raise NotUnderstood(
            "a shell behind sudo (put `sudo` before each command, and write a file with "
            "`… | sudo tee FILE`)"
        )
    return commands[0]


# Programs that change files, for `sudo`, and for other hosts. Links and mode bits that would give
# the file's owner to whoever runs it are left out.

RECURSIVE = "-r -R -f -i -I -d -v --recursive --force --dir --verbose --one-file-system"
CHANGE = "-R -v -c -f -h --recursive --verbose --changes --silent --quiet --no-dereference"
FILE_PROGRAMS: dict[str, str] = {
    "rm": RECURSIVE,
    "rmdir": "-p -v --parents --verbose --ignore-fail-on-non-empty",
    "mkdir": "-p -v -m= --parents --verbose --mode=",
    "touch": "-a -c -m -d= --date= --no-create",
    "truncate": "-c -s= --no-create --size=",
    "chmod": CHANGE,
    "chown": CHANGE,
    "chgrp": CHANGE,
    "cp": f"{RECURSIVE} -a -L -n -P -p -T -u -x --archive --no-clobber --preserve? --update?",
    "mv": "-f -i -n -T -u -v --force --no-clobber --verbose --update?",
    "ln": "-s -f -n -r -v -T --symbolic --force --no-dereference --relative --verbose",
    "install": "-C -d -D -g= -m= -o= -p -v -T --directory --mode= --owner= --group= --verbose",
    "tee": "-a --append",
    "sed": "-n -E -r -s -e= -i? --quiet --silent --expression= --regexp-extended --in-place?",
}
MODE = re.compile(r"0?[0-7]{3}|[ugoa]*[-+=][rwxX]+(?:,[ugoa]*[-+=][rwxX]+)*")
OWNER = re.compile(r"[\w.-]*(?::[\w.-]*)?")
FIRST_WORD = {"chmod": MODE, "chown": OWNER, "chgrp": OWNER}
ROOTS = names("/ /bin /boot /dev /etc /home /lib /opt /proc /root /run /sbin /srv /sys /usr /var")
"""Paths that must not be removed or changed as a whole."""


def changes_files(argv: Argv) -> Understanding:
    line = read(argv[1:], FILE_PROGRAMS[argv[0]])
    require(line.values("-m", "--mode"), MODE)
    require(line.values("-o", "-g", "--owner", "--group"), OWNER)
    paths = line.operands
    if argv[0] in FIRST_WORD:
        require(paths[:1], FIRST_WORD[argv[0]])
        paths = paths[1:]
    if not paths:
        raise NotUnderstood("no path")
    if argv[0] == "ln" and line.has("-s", "--symbolic"):
        paths = _linked(paths)
    level, why = SAFE, "changes files"
    if line.has("-r", "-R", "--recursive") and any(map(is_root, paths)):
        level, why = NEVER, "would destroy a whole system"
    return replace(acts(argv[0], argv[1:], level, why), writes=paths)


def _linked(operands: Argv) -> Argv:
    """Return a symbolic link and what it may lead to: a relative target begins where the link is,
    which is inside the last operand if that is a directory."""
    link = operands[-1] if len(operands) > 1 else "."
    targets = operands[:-1] or operands
    places = (posixpath.dirname(link), link)
    return (link, *(posixpath.join(place, target) for place in places for target in targets))


def is_root(path: str) -> bool:
    return posixpath.normpath(path).replace("//", "/") in ROOTS


def _delimited(mark: str) -> str:
    """Return a pattern for a part of a sed script and its end, which no bracket may hold."""
    return rf"(?:\\.|\[\^?\]?[^\]\n{mark}]*\]|[^\[\\\n{mark}])*{mark}"


SED_ADDRESS = rf"(?:\d+|\$|/{_delimited('/')}I?)"
SED_COMMANDS = (
    *("[pd=]", r"q\d*"),
    *(rf"s{mark}{_delimited(mark) * 2}[gpiI0-9]*" for mark in map(re.escape, "/|#,")),
)
SED_COMMAND = rf"(?:{SED_ADDRESS}(?:,(?:\+\d+|{SED_ADDRESS}))?)?!?\s*(?:{'|'.join(SED_COMMANDS)})"
SED_SCRIPT = re.compile(rf"\s*{SED_COMMAND}(?:\s*;\s*{SED_COMMAND})*\s*;?\s*")
"""Printing, deleting and replacing lines; other commands run programs or name files."""


def sed(argv: Argv) -> Understanding:
    line = read(argv[1:], FILE_PROGRAMS["sed"])
    scripts = line.values("-e", "--expression")
    paths = line.operands if scripts else line.operands[1:]
    if not scripts and not line.operands:
        raise NotUnderstood("no script")
    require(scripts or line.operands[:1], SED_SCRIPT)
    if not line.has("-i", "--in-place"):
        return looks(argv)
    return replace(acts("sed -i", argv[1:], SAFE, "changes files"), writes=paths or (".",))


# Signals.

PROCESS_ID = re.compile(r"[0-9]{1,10}")
SIGNALS = frozenset(
    f"{prefix}{name}"
    for prefix in ("", "SIG")
    for name in names("HUP INT QUIT KILL TERM USR1 USR2 STOP CONT WINCH 1 2 3 9 10 12 15 18 19 28")
)
PKILL = """
    -f -x -i -n -o -e -u= -U= -P= -F= -L -H --full --exact --ignore-case --newest --oldest --echo
    --signal= --euid= --uid= --parent= --pidfile= --logpidfile
"""
KILLALL = "-e -q -v -w -s= -u= --signal="
NAMES_A_PROGRAM = re.compile(r"\^?(?=.*\w{3})(?:[\w ./:@=-]|\[\w\])+\$?")
"""Read alike as a regular expression by pkill and here."""
PID_FILE = re.compile(r"(?:/var)?/run/(?!.*\.\.)[\w./@-]+\.pid")
"""A file that only a service writes."""
ENDS = "ends processes of the host"


def kill(argv: Argv) -> Understanding:
    """Read kill with at most one signal. Process groups and all processes are left out."""
    signal, pids = "TERM", argv[1:]
    match argv[1:]:
        case ("-l" | "-L", *signals):
            require(signals, re.compile(r"\w+"))
            return looks(argv, HOST)
        case ("-0", *rest):
            signal, pids = "0", tuple(rest)
        case ("-s" | "-n" | "--signal", given, *rest):
            signal, pids = given, tuple(rest)
        case (given, *rest) if given.startswith("-") and given != "--":
            signal, pids = given[1:], tuple(rest)
    if signal not in {*SIGNALS, "0"} or (signal == "0" and argv[1] != "-0"):
        raise NotUnderstood(f"the signal {signal}")
    pids = pids[1:] if pids[:1] == ("--",) else pids
    if not pids:
        raise NotUnderstood("no process")
    require(pids, PROCESS_ID)
    if signal == "0":
        return looks(argv, HOST)
    level = NEVER if any(int(pid) < 2 for pid in pids) else SAFE
    return acts("kill", argv[1:], level, ENDS, HOST)


def kill_by_name(argv: Argv) -> Understanding:
    """Read pkill and killall. A file of /run names the process of one service."""
    is_pkill = argv[0] == "pkill"
    short = tuple(word[1:] for word in argv[1:] if word[:1] == "-" and word[1:] in SIGNALS)
    kept = tuple(word for word in argv[1:] if word[:1] != "-" or word[1:] not in SIGNALS)
    line = read(kept, PKILL if is_pkill else KILLALL)
    signals = (*short, *line.values("--signal"), *(() if is_pkill else line.values("-s")))
    if len(signals) > 1 or not SIGNALS.issuperset(signals):
        raise NotUnderstood(f"the signal {' '.join(signals)}")
    files, operands = line.values("-F", "--pidfile"), line.operands
    require(files, PID_FILE)
    found = acts(argv[0], argv[1:], SAFE, ENDS, HOST)
    if files and not operands:
        return found
    if files or (is_pkill and len(operands) > 1):
        raise NotUnderstood("two ways to name a process")
    if not operands or not all(map(NAMES_A_PROGRAM.fullmatch, operands)):
        return replace(found, level=NEVER)
    return replace(
        found,
        chooses=ProcessChoice(
            signal=(*signals, "TERM")[0],
            patterns=operands if is_pkill else tuple(map(re.escape, operands)),
            whole_line=line.has("-f", "--full"),
            exact=not is_pkill or line.has("-x", "--exact"),
            ignore_case=line.has("-i", "--ignore-case"),
            newest=line.has("-n", "--newest"),
            oldest=line.has("-o", "--oldest"),
            users=_listed(line.values("-u", "-U", "--euid", "--uid")),
            parents=_listed(line.values("-P", "--parent")),
        ),
    )


def _listed(values: Argv) -> Argv:
    return tuple(word for value in values for word in value.split(","))


# Programs whose first word says what they do.

DISKS, CERTIFICATES = "changes file systems or disks", "changes certificates"
WHY = {"zpool": DISKS, "zfs": DISKS, "certbot": CERTIFICATES, "ufw": "changes the firewall"}
MDADM = (LOOK, "-s -b -Y --scan --brief --export --no-devices")
ZFS = "-r -d= -H -p -o= -s= -S= -t= -j"
UFW = (FULL, "--force --dry-run")
VERBS: dict[str, dict[str, tuple[int, str]]] = {
    "zpool": {
        "status": (LOOK, "-v -x -L -P -p -D -i -g -s -t -T= -j"),
        "list": (LOOK, "-H -v -p -L -P -g -o= -T= -j"),
        "iostat": (LOOK, "-v -l -q -r -w -H -p -y -L -P -g -n -T="),
        "history": (LOOK, "-i -l"),
        "get": (LOOK, "-H -p -o="),
        "scrub": (FULL, "-s -p -w"),
        "clear": (FULL, ""),
        "online": (FULL, ""),
    },
    "zfs": {
        "list": (LOOK, ZFS),
        "get": (LOOK, ZFS),
        "snapshot": (FULL, "-r"),
        "mount": (FULL, "-a -v"),
    },
    # Of two modes mdadm takes the last.
    "mdadm": dict.fromkeys(("--detail", "-D", "--examine", "-E"), MDADM),
    "certbot": {
        "certificates": (LOOK, "-d= --cert-name= --domains="),
        "renew": (FULL, "-q -n --quiet --non-interactive --dry-run --cert-name= --force-renewal"),
    },
    "ufw": {
        "status": (LOOK, ""),
        "show": (LOOK, ""),
        **dict.fromkeys(("enable", "disable", "allow", "deny", "delete", "reload"), UFW),
    },
    "fail2ban-client": dict.fromkeys(("status", "ping", "version", "banned"), (LOOK, "")),
    "tailscale": {
        "status": (LOOK, "--json --peers? --self? --active"),
        "ip": (LOOK, "-4 -6 -1"),
        "netcheck": (LOOK, "--format="),
        "version": (LOOK, "--json"),
    },
    "virsh": {
        "list": (LOOK, "--all --name --uuid --id --inactive --title --persistent --transient"),
        "domstate": (LOOK, "--reason"),
        "domifaddr": (LOOK, "--source= --full"),
        "domblklist": (LOOK, "--details"),
        "pool-list": (LOOK, "--all --details --name --inactive"),
        "net-list": (LOOK, "--all --name --inactive"),
        **dict.fromkeys(("dominfo", "nodeinfo", "pool-info", "net-info", "version"), (LOOK, "")),
    },
}


def by_verb(argv: Argv) -> Understanding:
    verbs, verb, rest = VERBS[argv[0]], " ".join(argv[1:2]), argv[2:]
    if verb not in verbs:
        raise NotUnderstood(f"`{verb}`")
    level, options = verbs[verb]
    require(read(rest, options).operands, PLAIN)
    why = WHY.get(argv[0], "") if level > LOOK else ""
    return acts(f"{argv[0]} {verb}", rest, level, why, HOST)


WG_FIELDS = names("""
    public-key listen-port fwmark peers endpoints allowed-ips latest-handshakes transfer
    persistent-keepalive
""")


def wg(argv: Argv) -> Understanding:
    """Read wg without what prints keys: `dump`, `private-key`, `showconf`."""
    match argv[1:]:
        case () | ("show",):
            return looks(argv, HOST)
        case ("show", name, *fields) if PLAIN.fullmatch(name) and WG_FIELDS.issuperset(fields):
            return looks(argv, HOST)
    return acts("wg", argv[1:], NEVER, "shows keys or changes a tunnel", HOST)


# Packages.

PACKAGE = re.compile(r"(?![\w./-]*\.(?:deb|rpm|apk|snap)\Z)[\w@][\w.+:~@-]*(?:=[\w.+:~-]+)?")
"""A package of a repository by its name; a file could hold any program."""
ANSWERS = """
    -y -q -v -a -i -s -V -f -n -qq --assumeyes --assume-yes --noconfirm --yes --quiet --all
    --installed --available --upgrades --upgradable --upgradeable --security --verbose --simulate
    --dry-run --all-versions --no-install-recommends --only-upgrade --fix-broken --reinstall
    --purge --version --manual-installed --names-only --now
"""
"""Options without files: a configuration file could name programs."""
DNF = (
    "list info search repolist provides check-update repoquery",
    "install upgrade update remove downgrade reinstall autoremove clean makecache",
)
APT = (
    "list show search policy depends rdepends showsrc madison",
    "install upgrade full-upgrade dist-upgrade remove purge autoremove update clean autoclean"
    " reinstall",
)
PACKAGES: dict[str, tuple[str, str]] = {
    # program: verbs that look, verbs that change
    **dict.fromkeys(("apt", "apt-get"), APT),
    **dict.fromkeys(("dnf", "yum"), DNF),
    "snap": ("list info find changes version", "install remove refresh revert enable disable"),
    "apk": ("info list search version policy", "add del upgrade update"),
}
DPKG_LOOKS = names("""
    -l -s -L -S -p -V -C --list --status --listfiles --search --verify --audit --get-selections
    --print-architecture --print-foreign-architectures --version
""")
DPKG_CHANGES = names("-r -P --configure --remove --purge")
INSTALLED = "changes what is installed"


def packages(argv: Argv) -> Understanding:
    line = read(argv[1:], ANSWERS)
    verb, named = " ".join(line.operands[:1]), line.operands[1:]
    look, change = PACKAGES[argv[0]]
    if verb in look.split() or (not verb and line.has("--version", "-v")):
        require(named, re.compile(r"[\w.+:~@*-]+"))
        return looks(argv, HOST)
    if verb not in change.split():
        raise NotUnderstood(f"`{verb}`")
    require(named, PACKAGE)
    if argv[0] in ("apt", "apt-get") and line.has("-s", "--simulate", "--dry-run"):
        return looks(argv, HOST)
    return acts(f"{argv[0]} {verb}", named, FULL, INSTALLED, HOST)


def dpkg(argv: Argv) -> Understanding:
    verb, named = " ".join(argv[1:2]), argv[2:]
    if verb in DPKG_LOOKS:
        require(named, re.compile(r"(?!-)[\w.+:~@*/-]+"))
        return looks(argv, HOST)
    if verb in DPKG_CHANGES:
        require(named, re.compile(rf"{PACKAGE.pattern}|-a"))
        return acts("dpkg", argv[1:], FULL, INSTALLED, HOST)
    raise NotUnderstood(f"`{verb}`")


# Kernel, mounts, firewall, cron, web servers.

# Left out: what clears the buffer or sets a level, -F (a file).
DMESG = """
    -T -H -k -u -x -e -l= -f= -r -t -w -L? -S -P --ctime --human --kernel --userspace --decode
    --reltime --level= --facility= --raw --notime --follow --time-format= --color? --nopager
    --since= --until=
"""
SMARTCTL = "-a -i -H -A -x -c -l= -d= -n= -j --all --info --health --scan --json"
VOLUMES = "-a -v -o= --all --noheadings --units= --separator= --options="
SETTINGS = names("""
    vm.swappiness vm.max_map_count vm.overcommit_memory vm.overcommit_ratio vm.dirty_ratio
    vm.dirty_background_ratio vm.drop_caches vm.vfs_cache_pressure vm.min_free_kbytes fs.file-max
    fs.nr_open fs.aio-max-nr fs.inotify.max_user_watches fs.inotify.max_user_instances
    kernel.pid_max kernel.threads-max net.core.somaxconn net.core.netdev_max_backlog
    net.core.rmem_max net.core.wmem_max net.ipv4.tcp_max_syn_backlog net.ipv4.tcp_fin_timeout
    net.ipv4.tcp_tw_reuse net.ipv4.tcp_keepalive_time net.ipv4.ip_local_port_range
    net.ipv4.ip_forward net.netfilter.nf_conntrack_max
""")
"""Kernel settings that Tier 3 may change."""
SETTING = re.compile(r"\w[\w*-]*(?:[./][\w*-]+)*")
"""The name of a setting; some versions of sysctl read any file by `net/../../../etc/x`."""
NFT_WORD = re.compile(r"\w[\w.-]*")
MOUNT_POINT = re.compile(r"/(?!.*(?:\.\.|//))[\w./@:+-]+")


def smartctl(argv: Argv) -> Understanding:
    """Read smartctl; `-l scterc,70,70` would set a value."""
    require(read(argv[1:], SMARTCTL).values("-l"), re.compile(r"[a-z]+"))
    return looking(SMARTCTL, HOST)(argv)


def sysctl(argv: Argv) -> Understanding:
    line = read(argv[1:], "-a -n -e -N -w -q -r= --all --values --names --write --pattern=")
    require((word.partition("=")[0] for word in line.operands), SETTING)
    set_here = [word.partition("=")[0] for word in line.operands if "=" in word]
    if not set_here and not line.has("-w", "--write"):
        return looks(argv, HOST)
    listed = SETTINGS.issuperset(set_here) and len(set_here) == len(line.operands)
    level, why = (FULL if listed else NEVER), "changes the kernel's settings"
    return acts("sysctl", argv[1:], level, why, HOST)


def mount(argv: Argv) -> Understanding:
    """Read mounts of fstab. Others could show what a sandbox hides, or replace files."""
    match argv:
        case ("mount",) | ("mount", "-l") | ("mount", "-t", _):
            return looks(argv, HOST)
        case ("mount", "-a"):
            return acts("mount", argv[1:], FULL, "changes what is mounted", HOST)
    line = read(argv[1:], "-v -l -f --lazy --force" if argv[0] == "umount" else "-v")
    by_name = len(line.operands) == 1 and MOUNT_POINT.fullmatch(line.operands[0])
    level = FULL if by_name and not is_root(line.operands[0]) else NEVER
    return acts(argv[0], argv[1:], level, "changes what is mounted", HOST)


def swap(argv: Argv) -> Understanding:
    if argv[0] == "swapon" and argv[1:] in (("--show",), ("-s",), ("--summary",)):
        return looks(argv, HOST)
    line = read(argv[1:], "-a -v --all --verbose")
    require(line.operands, MOUNT_POINT)
    return acts(argv[0], argv[1:], FULL, "changes the memory of the host", HOST)


def firewall(argv: Argv) -> Understanding:
    """Read iptables without -M, which names a program."""
    if flag := next((word for word in argv[1:] if re.match(r"-[^-]*M|--mo", word)), ""):
        raise NotUnderstood(f"the option {flag}")
    try:
        line = read(
            argv[1:],
            "-L -S -n -v -x -t= --list --list-rules --numeric --verbose --line-numbers --table=",
        )
    except NotUnderstood:
        return acts(argv[0], argv[1:], FULL, "changes the firewall", HOST)
    if not line.has("-L", "--list", "-S", "--list-rules") or len(line.operands) > 1:
        return acts(argv[0], argv[1:], FULL, "changes the firewall", HOST)
    return looks(argv, HOST)


def nft(argv: Argv) -> Understanding:
    """Read nft without files. It joins its words; a semicolon begins another command."""
    line = read(argv[1:], "-a -n -j -s -y --handle --json --numeric --stateless", to_operand=True)
    if line.operands[:1] == ("list",) and all(map(NFT_WORD.fullmatch, line.operands)):
        return looks(argv, HOST)
    if not line.operands or any(re.match(r"-|include\b", word) for word in line.operands):
        raise NotUnderstood("an option behind the command, or a file")
    return acts("nft", argv[1:], FULL, "changes the firewall", HOST)


def sshd(argv: Argv) -> Understanding:
    """Read the checks of sshd, with its own configuration file."""
    line = read(argv[1:], "-t -T -C=")
    if line.operands or not line.has("-t", "-T"):
        raise NotUnderstood("that it would start a server: only -t and -T")
    require(line.values("-C"), re.compile(r"[\w=.,:-]+"))
    return looks(argv, HOST)


def crontab(argv: Argv) -> Understanding:
    match argv[1:]:
        case ("-l",) | ("-u", _, "-l") | ("-l", "-u", _):
            return looks(argv, HOST)
        case ("-r",) | ("-u", _, "-r") | ("-r", "-u", _):
            return acts("crontab", argv[1:], FULL, "changes what runs by the clock", HOST)
    return acts("crontab", argv[1:], NEVER, "runs commands later outside of any sandbox", HOST)


def nginx(argv: Argv) -> Understanding:
    """Read nginx without a configuration file, which can load code."""
    line = read(argv[1:], "-t -T -v -V -q -h -s=")
    asked = line.values("-s")
    if line.operands or not line.options or (asked and line.has("-t", "-T")):
        raise NotUnderstood("that it would start a server, or two modes at once")
    if not asked:
        return looks(argv, HOST)
    level = SAFE if set(asked) <= {"reload", "reopen"} else FULL
    return acts("nginx -s", argv[1:], level, "signals the web server", HOST)


CLUSTER = re.compile(r"(?P<version>\d+(?:\.\d+)?)[- ](?P<name>\w[\w-]*) (?P<verb>[a-z]+)")
CLUSTER_VERBS = {
    "status": LOOK,
    **dict.fromkeys(("start", "stop", "restart", "reload"), SAFE),
    "promote": FULL,
}


def pg_ctlcluster(argv: Argv) -> Understanding:
    """Read Debian's control of a PostgreSQL server; options of the server are left out."""
    line = read(argv[1:], "-f -m= --force --mode=")
    require(line.values("-m", "--mode"), re.compile(r"smart|fast|immediate"))
    found = CLUSTER.fullmatch(" ".join(line.operands))
    level = CLUSTER_VERBS.get(found["verb"]) if found else None
    if found is None or level is None:
        raise NotUnderstood(f"`{' '.join(line.operands)}`")
    verb, why = found["verb"], "starts, stops or restarts a database server"
    return replace(
        acts(f"pg_ctlcluster {verb}", argv[1:], level, why if level > LOOK else "", HOST),
        kind=RESTART if verb in ("start", "restart") else OTHER,
        services=(f"postgresql@{found['version']}-{found['name']}",),
    )


LOG_SETTINGS = re.compile(r"/etc/logrotate(?:\.conf|\.d/(?!\.)[\w.@-]+)")
"""Files of the system: those of others name programs that root would run."""


def logrotate(argv: Argv) -> Understanding:
    line = read(argv[1:], "-d -f -v --debug --force --verbose")
    if len(line.operands) != 1 or not LOG_SETTINGS.fullmatch(line.operands[0]):
        raise NotUnderstood("settings other than /etc/logrotate.conf or a file of /etc/logrotate.d")
    if line.has("-d", "--debug"):
        return looks(argv, HOST)
    return acts("logrotate", argv[1:], SAFE, "rotates logs", HOST)


def apache(argv: Argv) -> Understanding:
    match argv[1:]:
        case ("-t" | "-v" | "-V" | "-S" | "-M" | "configtest" | "-l",):
            return looks(argv, HOST)
        case ("graceful" | "restart" | "start" | "stop" as verb,):
            found = acts(f"{argv[0]} {verb}", (), SAFE, "restarts the web server", HOST)
            return replace(found, kind=RESTART, services=("apache2",))
    raise NotUnderstood(f"`{' '.join(argv[1:])}`")


FORBIDDEN = {
    "ends the whole system": "reboot shutdown poweroff halt init telinit kexec",
    "destroys file systems or disks": """
        mkfs mkfs.ext4 mkfs.xfs mkfs.btrfs mkswap wipefs fdisk sfdisk parted dd shred
    """,
    "changes who may enter": """
        useradd usermod userdel groupadd adduser deluser passwd chpasswd visudo
    """,
}


def forbidden(why: str) -> Grammar:
    return lambda argv: acts(argv[0], argv[1:], NEVER, why, HOST)


ON_HOST: dict[str, Grammar] = {
    **dict.fromkeys(("sudo", "doas"), sudo),
    "kill": kill,
    **dict.fromkeys(("pkill", "killall"), kill_by_name),
    **dict.fromkeys(VERBS, by_verb),
    "wg": wg,
    **dict.fromkeys(PACKAGES, packages),
    "dpkg": dpkg,
    "dmesg": looking(DMESG, HOST, ""),
    "smartctl": smartctl,
    **dict.fromkeys(("lvs", "vgs", "pvs"), looking(VOLUMES, HOST)),
    "sysctl": sysctl,
    **dict.fromkeys(("mount", "umount"), mount),
    **dict.fromkeys(("swapon", "swapoff"), swap),
    **dict.fromkeys(("iptables", "ip6tables"), firewall),
    "nft": nft,
    "crontab": crontab,
    "nginx": nginx,
    "sshd": sshd,
    **dict.fromkeys(
        ("iptables-save", "ip6tables-save"), looking("-c -t= --counters --table=", HOST, "")
    ),
    "pg_ctlcluster": pg_ctlcluster,
    **dict.fromkeys(("apachectl", "apache2ctl"), apache),
    **dict.fromkeys(("reboot", "shutdown"), forbidden("ends the whole system")),
}
GRAMMARS: dict[str, Grammar] = {
    **{name: forbidden(why) for why, programs in FORBIDDEN.items() for name in programs.split()},
    **ON_HOST,
    **dict.fromkeys(FILE_PROGRAMS, changes_files),
    "sed": sed,
    "logrotate": logrotate,
}
