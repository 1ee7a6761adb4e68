"""Programs that show processes, sockets, memory, disks and files of the host, and only that.

A sandbox would show them something false: its own processes, "nobody" for every other user, hidden
directories as empty. So they run on the host itself. None of them, with the options that are
understood here, writes, prints the text of a file or the environment of a process, sends a signal
or starts a program.
"""

from __future__ import annotations

import re

from escalation.command_policy.grants import HOST, PROCESS_TABLE, PROCESSES
from escalation.command_policy.programs.options import (
    Grammar,
    acts,
    looking,
    looks,
    names,
    read,
    reader,
    require,
)
from escalation.command_policy.understanding import (
    FULL,
    LOOK,
    NEVER,
    Argv,
    NotUnderstood,
    Understanding,
)

HARMLESS = """
    pidof pstree pwdx netstat free vmstat mpstat uptime w df lsmod lsns lslocks lsipc
    mountpoint namei stat ls id groups
"""
"""No option of theirs writes a file, shows its text, sends a signal or starts a program."""
ALSO_IN_SANDBOX = names("ls stat tree namei mountpoint id groups users hostname du")
"""Programs that also work in a sandbox, and there show its files."""
TABLE = {
    # Left out: -K (closes sockets), -D (writes a file), -F (reads one), -N (another namespace).
    "ss": """
        -t -u -l -n -p -a -e -o -m -i -s -x -w -4 -6 -0 -r -H -O -Z -b -d -z -S -M -T --tcp --udp
        --listening --numeric --processes --all --extended --options --memory --info --summary
        --unix --raw --ipv4 --ipv6 --resolve --no-header --oneline -f= --family= -A= --query=
        --socket= --sctp --packet
    """,
    # Left out: -k and signals.
    "fuser": "-v -m -u -4 -6 -a -s -c -l -V -M -n= --verbose --mount --user --namespace=",
    # Left out: --files0-from and -X (files whose text would be shown).
    "du": """
        -a -b -c -d= -D -h -H -k -l -L -m -P -s -S -t= -x -0 --all --apparent-size --bytes --total
        --max-depth= --human-readable --si --summarize --separate-dirs --one-file-system --time?
        --threshold= --exclude= --inodes --block-size= -B=
    """,
    # Left out: -F (a file whose text would be shown), -N (another process).
    "findmnt": """
        -a -A -b -C -D -e -f -h -i -J -k -l -M= -n -O= -o= -P -R -r -S= -s -T= -t= -U -u -V -v --all
        --ascii --bytes --canonicalize --df --evaluate --first-only --invert --json --list
        --mountpoint= --noheadings --notruncate --options= --output= --output-all --pairs --raw
        --real --pseudo --source= --submounts --target= --tree --types= --uniq --kernel --fstab
        --nofsroot --shadowed --id= --uniq-id=
    """,
    # Left out: -f, a file whose text would be shown.
    "last": """
        -a -d -F -i -n= -p= -R -s= -t= -w -x -0 -1 -2 -3 -4 -5 -6 -7 -8 -9 --dns --fulltimes
        --fullnames --hostlast --ip --limit= --nohostname --since= --until= --present= --system
        --time-format=
    """,
    # Left out: -C, -N, -c and -n, which read and write settings.
    "pmap": "-x -d -q -p -X -A= --extended --device --quiet --show-path --range=",
    # Left out: --sysroot.
    "lsblk": """
        -a -A -b -d -D -e= -f -i -I= -J -l -M -m -n -N -o= -O -p -P -r -s -S -t -T? -v -V -x= -y -z
        --all --bytes --nodeps --discard --exclude= --fs --ascii --include= --json --list --merge
        --perms --noheadings --nvme --output= --output-all --paths --pairs --raw --inverse --scsi
        --topology --tree? --virtio --sort= --zoned --width= --dedup= -w= -E=
    """,
    "lscpu": """
        -a -b -B -c -C? -e? -J -p? -r -x -y --all --online --bytes --offline --caches? --extended?
        --json --parse? --raw --hex --physical --output-all --version -V
    """,
    # Left out: -f, a directory with figures of its own.
    "iostat": """
        -c -d -h -k -m -N -s -t -V -x -y -z -p? -g= -H -j= -o= --dec= --human --pretty --compact
    """,
    # Without a file, whose text would be shown.
    "users": "",
    "who": "-a -b -d -H -l -m -p -q -r -s -t -T -w -u --all --boot --count --heading --users",
    # Left out: -s, which sets limits.
    "sensors": "-u -j -A -f --no-adapter --fahrenheit",
    # Left out: -e (a program) and -o (a file).
    "pidstat": "-d -r -u -h -H -l -s -t -v -w -R -I -U? -p= -C= -G= -T= --human",
    "sar": """
        -A -B -b -d -F -H -h -p -q -r -S -u -v -W -w -y -z -f= -s= -e= -i= -I= -m= -n= -P= -t
        --human --pretty --dec=
    """,
    "arp": "-a -n -e -v -i=",
    "route": "-n -e -4 -6",
    # Without a program.
    "numactl": "-H -s --hardware --show",
    "top": "-b -c -i -H -S -n= -d= -o= -p= -u= -U= -w? -E= -e= -1 -v -h",
    # Left out: --env, which would tell the environment of a process bit by bit.
    "pgrep": """
        -a -A -c -d= -f -g= -G= -H -i -l -L -n -o -O= -P= -q -r= -s= -t= -u= -U= -v -w -x -Q -F=
        --list-full --list-name --count --delimiter= --full --pgroup= --group= --ignore-case
        --ignore-ancestors --newest --oldest --older= --parent= --session= --terminal= --euid=
        --uid= --inverse --lightweight --exact --pidfile= --runstates= --quiet --cgroup= --ns=
        --nslist= --require-handler --logpidfile
    """,
    # Left out: -b, -F (a file), and a name to set.
    "hostname": """
        -a -A -d -f -i -I -s -y --fqdn --long --short --domain --ip-address --all-ip-addresses
        --all-fqdns --alias
    """,
    # Left out: -o (a file), -R (a file in each directory), --fromfile, --info…, --gitfile.
    "tree": """
        -a -d -f -x -L= -P= -I= -p -u -g -s -h -D -F -i -n -C -r -t -c -U -v -A -S -J -X -Q -N -q
        --dirsfirst --noreport --du --prune --inodes --device --filelimit= --timefmt= --sort=
        --charset= --si --ignore-case --matchdirs --noroot
    """,
    "systemd-cgls": "-a -l -k -u? -c? --no-pager --all --full --unit? --user-unit?",
    # Of Debian: looks at the clusters of PostgreSQL.
    "pg_lsclusters": "-h -j -s --no-header --json --start-conf --help",
}
OPERANDS = {
    **dict.fromkeys(("route", "numactl", "top", "hostname", "users"), ""),
    **{"who": "am|i", "iostat": r"[\w./-]+", "ss": r"[\w.:/@%=,()<>! *-]+"},
    **dict.fromkeys(("du", "tree", "pgrep"), ".*"),
}
# The words of a `ps` that cannot print environments. What it rejects it reads once more in the
# style of BSD, where an `e` in any word means environments. So `-e` is understood with one format
# alone, which it does not reject.
PS_LONG = re.compile(
    r"--(?:forest|no-headers?|headers|(?!.*environ)(?:sort|pid|ppid|cols|width)=[\w,%+.-]+)"
)
PS_BSD = re.compile(r"(?P<flags>[axfujlvwcrh]*)(?P<option>[opU]?)(?P<value>)")
PS_UNIX = re.compile(r"-(?P<flags>[AadefFjlHw]*)(?P<option>[opCuU]?)(?P<value>.*)")
PS_VALUES = {
    "o": re.compile(r"(?!.*environ)[a-z_%,=:]+"),
    "p": re.compile(r"[0-9,]+"),
    "C": re.compile(r"[\w.:@/,+-]+"),
    **dict.fromkeys("uU", re.compile(r"[\w.,-]+")),
}
PS_FORMATS: tuple[set[str], ...] = (set(), {"f"}, {"F"}, {"l"}, {"l", "f"}, {"j"}, {"o"})
IP_OPTIONS = """
    -4 -6 -0 -s -d -r -o -br -c -j -p -h -N -t -stats -details -resolve -oneline -brief -color?
    -json -pretty -human -statistics -f= -family=
"""
IP_OBJECTS = names("""
    address addr a link l route r rule neighbour neighbor neigh n maddress maddr mroute ntable
    tunnel token tcp_metrics netconf
""")
IP_LOOKS = frozenset({"show", "list", "lst", "ls", "sh", "l", "get"})  # "s" may be "set"


PS_VALUED = re.compile(
    r"-[A-Za-z]*[CGgOopqstUu]|[A-Za-z]*[OopqtUk]"
    r"|--(?:[Gg]roup|[Uu]ser|p?pid|quick-pid|sid|tty|sort|format|cols|columns|width|rows|lines)"
)
PS_ENVIRONMENT = re.compile(r"[A-Za-z]*e[A-Za-z]*|-[A-Za-z]*u[A-Za-z]*e[A-Za-z]*")
"""Options that show the variables of each process: `axe`, and `-auxe`, which ps reads alike."""


def ps(argv: Argv) -> Understanding:
    before = ""
    for word in argv[1:]:
        if PS_ENVIRONMENT.fullmatch(word) and not PS_VALUED.fullmatch(before):
            return acts("ps", argv[1:], NEVER, "shows the variables of processes", PROCESSES)
        before = word
    # With other words than those it gets a process table without environments.
    return looks(argv, PROCESSES if _shows_no_environment(argv[1:]) else PROCESS_TABLE)


def top(argv: Argv) -> Understanding:
    """Read top in batch mode: on a screen it takes commands."""
    line = read(argv[1:], TABLE["top"])
    if not line.has("-b", "-v", "-h"):
        raise NotUnderstood("a screen: add -b -n 1")
    require(line.values("-o"), re.compile(r"(?i:(?!.*env).*)"))
    return looking(TABLE["top"], PROCESSES, OPERANDS["top"])(argv)


def fuser(argv: Argv) -> Understanding:
    if any(re.match(r"-[a-zA-Z]*k|--kill", word) for word in argv[1:]):
        raise NotUnderstood("the option -k (look with `fuser`, then use `kill` with the number)")
    return looking(TABLE["fuser"], PROCESSES)(argv)


def _shows_no_environment(words: Argv) -> bool:
    letters: set[str] = set()
    rest = iter(words)
    for written in rest:
        word = f"--sort={next(rest, '')}" if written == "--sort" else written
        if PS_LONG.fullmatch(word):
            continue
        found = PS_BSD.fullmatch(word) or PS_UNIX.fullmatch(word)
        if found is None or word in ("", "-"):
            return False
        option, value = found["option"], found["value"]
        if word.startswith("-"):
            letters |= {*found["flags"], *option}
        # `-uxe` is read as `uxe` where there is no user xe.
        if (value and option in ("", "u", "U")) or (
            option and not PS_VALUES[option].fullmatch(value or next(rest, ""))
        ):
            return False
    return "e" not in letters or letters - {"e", "w", "H"} in PS_FORMATS


def networkctl(argv: Argv) -> Understanding:
    line = read(argv[1:], "-a -s -l -n= --no-pager --no-legend --all --stats --full --lines=")
    if line.operands[:1] not in ((), ("list",), ("status",), ("lldp",)):
        raise NotUnderstood(f"`{line.operands[0]}`: only list, status and lldp")
    return looks(argv, PROCESSES)


# Left out: -D and -m, which write and read files, -A and -k. A value that does not fit its option
# lsof reads as further options, so only plain values are attached.
LSOF = re.compile(
    r"-[abCEhHKlMnNOPQRtUvVwX]*"
    r"(?:[cdepu].*|i[^-+]*|F[a-zA-CE-Z0-9]*|s(?:[a-zA-Z]+:[\w^,]+)?|T[fqsw]*|x[fl]*|f[cfgGn]*"
    r"|[goLrS][\d,^]*)?"
    r"|\+(?:[cLr]\d*|[dDe].*|f[cfgGn]*|[EMw])"
)


def lsof(argv: Argv) -> Understanding:
    require((word for word in argv[1:] if word[:1] in ("-", "+") and word != "--"), LSOF)
    return looks(argv, PROCESSES)


def ip(argv: Argv) -> Understanding:
    line = read(argv[1:], IP_OPTIONS, to_operand=True)
    words = line.operands
    if words and words[0] not in IP_OBJECTS:
        raise NotUnderstood(f"`{words[0]}`")
    if len(words) < 2 or words[1] in IP_LOOKS:
        return acts(" ".join(("ip", *words[:1])), words[1:], LOOK, "", PROCESSES)
    match words:
        case ("link" | "l", "set", name, "up" | "down") if re.fullmatch(r"\w[\w.@-]*", name):
            return acts("ip link set", words[2:], FULL, "changes the host's network", HOST)
    raise NotUnderstood(f"`{words[1]}`: only show, and `ip link set NAME up|down`")


GRAMMARS: dict[str, Grammar] = {
    **dict.fromkeys(HARMLESS.split(), reader(PROCESSES)),
    **{
        name: looking(options, PROCESSES, OPERANDS.get(name, r"[\w.:/@+%,-]+"))
        for name, options in TABLE.items()
    },
    "ps": ps,
    "top": top,
    "fuser": fuser,
    "networkctl": networkctl,
    "lsof": lsof,
    "ip": ip,
}
