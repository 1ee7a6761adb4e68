"""Programs that show processes, sockets, memory and disks of the host.

A sandbox would show them something false, so they run with the host's process table and network
namespace, which they can only read.
"""

from __future__ import annotations

import re

from escalation.command_policy.grants import HOST, PROCESSES
from escalation.command_policy.programs.options import (
    Grammar,
    acts,
    looking,
    looks,
    names,
    read,
    reader,
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
    ps pgrep pidof pstree pwdx netstat free vmstat iostat mpstat uptime w df lsmod lsns lslocks
    lsipc
"""
"""No option of theirs writes a file, shows its text, sends a signal or starts a program."""
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
}
OPERANDS = {
    **dict.fromkeys(("route", "numactl", "top"), ""),
    **{"who": "am|i", "du": ".*", "ss": r"[\w.:/@%=,()<>! *-]+"},
}
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
    return looks(argv, PROCESSES)


def top(argv: Argv) -> Understanding:
    """Read top in batch mode: on a screen it takes commands."""
    if not read(argv[1:], TABLE["top"]).has("-b", "-v", "-h"):
        raise NotUnderstood("a screen: add -b -n 1")
    return looking(TABLE["top"], PROCESSES, OPERANDS["top"])(argv)


def fuser(argv: Argv) -> Understanding:
    if any(re.match(r"-[a-zA-Z]*k|--kill", word) for word in argv[1:]):
        raise NotUnderstood("the option -k (look with `fuser`, then use `kill` with the number)")
    return looking(TABLE["fuser"], PROCESSES)(argv)


def lsof(argv: Argv) -> Understanding:
    """Read lsof without -D, which writes a file."""
    if flag := next((word for word in argv[1:] if re.match(r"-.*D", word)), ""):
        raise NotUnderstood(f"the option {flag}")
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
    "lsof": lsof,
    "ip": ip,
}
