"""Programs that query the network, and the clients of forges."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

from escalation.command_policy.grants import NETWORK, RAW
from escalation.command_policy.programs.options import (
    Grammar,
    acts,
    by_level,
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
    SAFE,
    Argv,
    NotUnderstood,
    Understanding,
)

NAME = re.compile(r"[\w.:/@+%=-]+")
# Left out: -f and -l, which flood.
PING = "-4 -6 -A -D -n -O -q -r -v -a -c= -i= -I= -m= -M= -p= -Q= -s= -S= -t= -T= -w= -W="
PING_INTERVAL = re.compile(r"[1-9]\d*(?:\.\d+)?|0\.[2-9]\d*")
# Left out: -f (queries of a file), -k and -y (keys).
DIG = "-4 -6 -b= -c= -i -m -p= -q= -r -t= -u -v -x= -h"
# Left out: -L and -D (log files), -m and -M (files of definitions).
SNMP = "-v= -c= -u= -l= -a= -A= -x= -X= -n= -r= -t= -O= -C= -I="
TABLE = {
    "traceroute": "-4 -6 -I -T -U -n -r -e -d -A -b -f= -i= -m= -p= -q= -w= -z= -N= -t= -s=",
    "tracepath": "-4 -6 -n -b -l= -m= -p=",
    "host": "-4 -6 -a -C -d -l -r -s -T -U -v -w -c= -N= -R= -t= -W= -p=",
    "dig": DIG,
    "snmpget": SNMP,
    "snmpwalk": SNMP,
    "pg_isready": "-h= -p= -d= -U= -t= -q --host= --port= --dbname= --username=",
    # Left out: -f, a file of hosts.
    "ssh-keyscan": "-4 -6 -c -D -H -v -p= -T= -t=",
    # Left out: -s, which loads a library.
    "getent": "",
}
MTR = """
    -r -w -c= -n -b -4 -6 -u -T -P= -i= -m= -s= -z -j -C -x --report --report-wide
    --report-cycles= --no-dns --json --csv --tcp --udp --port= --show-ips
"""
MTR_REPORTS = ("-r", "--report", "-w", "--report-wide", "-j", "--json", "-C", "--csv")
S_CLIENT = """
    -connect= -servername= -showcerts -status -brief -prexit -quiet -verify= -verify_return_error
    -CAfile= -CApath= -tls1 -tls1_1 -tls1_2 -tls1_3 -starttls= -alpn= -noservername -no_ign_eof
    -cipher= -ciphersuites= -4 -6 -host= -port= -verify_hostname= -state -msg -tlsextdebug
"""
# Left out: what signs, writes a file or loads a library.
CERTIFICATES = {
    "version": "-a -v -d -p -o -f",
    "ciphers": "-v -V -s -tls1 -tls1_1 -tls1_2 -tls1_3 -stdname",
    "verify": """
        -CAfile= -CApath= -untrusted= -purpose= -show_chain -verbose -partial_chain -x509_strict
        -verify_hostname= -trusted= -check_ss_sig -no-CAfile -no-CApath
    """,
    "x509": """
        -in= -inform= -noout -text -dates -startdate -enddate -subject -issuer -serial -fingerprint
        -sha1 -sha256 -checkend= -checkhost= -checkip= -checkemail= -ext= -nameopt= -certopt= -email
        -ocsp_uri -ocspid -purpose -pubkey -modulus -subject_hash -issuer_hash -hash -alias
        -dateopt=
    """,
}
NTPQ = names("""
    peers lpeers opeers apeers pe lpe associations as rv readvar rl readlist sysinfo sysstats
    kerninfo iostats monstats version
""")
CHRONYC = names("""
    tracking sources sourcestats activity ntpdata serverstats rtcdata smoothing selectdata clients
    waitsync
""")


def ping(argv: Argv) -> Understanding:
    line = read(argv[1:], PING)
    require(line.operands, NAME)
    require(line.values("-i"), PING_INTERVAL)
    return looks(argv, RAW)


def mtr(argv: Argv) -> Understanding:
    line = read(argv[1:], MTR)
    require(line.operands, NAME)
    if not line.has(*MTR_REPORTS):
        raise NotUnderstood("a screen: add --report")
    return looks(argv, NETWORK)


def nslookup(argv: Argv) -> Understanding:
    """Read nslookup with a name: without one it reads commands."""
    require(argv[1:], NAME)
    if "-" in argv or all(word.startswith("-") for word in argv[1:]):
        raise NotUnderstood("a query without a name")
    return looks(argv, NETWORK)


def whois(argv: Argv) -> Understanding:
    """Read whois without ports, by which it could query any service."""
    line = read(argv[1:], "-h= -H -a -d")
    require((*line.operands, *line.values("-h")), re.compile(r"[\w.-]+"))
    if len(line.operands) != 1:
        raise NotUnderstood("several words to look for")
    return looks(argv, NETWORK)


def netcat(argv: Argv) -> Understanding:
    """Read nc as a test of a port."""
    line = read(argv[1:], "-z -v -n -u -w= -4 -6 -i=")
    require(line.operands, NAME)
    if not line.has("-z"):
        raise NotUnderstood("a connection: only a test with -z")
    return looks(argv, NETWORK)


def openssl(argv: Argv) -> Understanding:
    """Read s_client, and what shows certificates, which needs no grant."""
    verb = " ".join(argv[1:2])
    if verb in CERTIFICATES:
        require(read(argv[2:], CERTIFICATES[verb]).operands, NAME)
        return looks(argv)
    if verb != "s_client":
        raise NotUnderstood(f"`{verb}`: only s_client, {', '.join(sorted(CERTIFICATES))}")
    line = read(argv[2:], S_CLIENT)
    require((*line.operands, *line.values("-connect", "-host")), NAME)
    return replace(acts("openssl s_client", argv[2:], LOOK, "", NETWORK), no_input=True)


def ntpq(argv: Argv) -> Understanding:
    line = read(argv[1:], "-p -n -c= -4 -6 --peers --numeric --command=")
    asked = line.values("-c", "--command")
    require((*line.operands, *asked), re.compile(r"[\w.: -]+"))
    if not NTPQ.issuperset((command.split() or [""])[0] for command in asked):
        raise NotUnderstood(f"`{', '.join(asked)}`")
    if not asked and not line.has("-p", "--peers"):
        raise NotUnderstood("a session: add -p")
    return looks(argv, NETWORK)


def chronyc(argv: Argv) -> Understanding:
    line = read(argv[1:], "-n -c -4 -6 -v -h= -p=")
    require((*line.operands, *line.values("-h")), NAME)
    if line.operands[:1] and line.operands[0] not in CHRONYC:
        raise NotUnderstood(f"`{line.operands[0]}`")
    if not line.operands and not line.has("-v"):
        raise NotUnderstood("a session: give a command")
    return looks(argv, NETWORK)


# gh and glab.

FORGE = by_level(
    {
        LOOK: """
            pr:list pr:view pr:status pr:checks pr:diff issue:list issue:view issue:status run:list
            run:view run:watch release:list release:view repo:view repo:list workflow:list
            workflow:view search:issues search:prs search:repos search:commits search:code
            label:list cache:list variable:list gist:list gist:view org:list ruleset:list
            ruleset:view mr:list mr:view mr:diff ci:list ci:view ci:status ci:trace pipeline:list
        """,
        SAFE: """
            pr:create pr:comment pr:edit pr:close pr:reopen pr:ready issue:create issue:comment
            issue:edit issue:close issue:reopen run:rerun run:cancel label:create mr:create mr:note
            mr:update mr:close issue:note ci:retry
        """,
        FULL: """
            pr:merge pr:review pr:lock pr:update-branch issue:transfer issue:delete issue:pin
            workflow:run workflow:enable workflow:disable release:create release:edit release:upload
            release:delete repo:create repo:edit repo:fork repo:sync label:edit label:delete
            secret:list secret:set variable:set cache:delete gist:create run:delete mr:merge
            mr:approve release:delete-asset
        """,
        NEVER: "repo:delete repo:archive repo:rename secret:delete variable:delete gist:delete",
    }
)
FORGE_WHY = {
    LOOK: "",
    SAFE: "writes on the forge",
    FULL: "changes what others build on",
    NEVER: "removes what cannot be brought back",
}
ENVIRONMENT = re.compile(r"\$ENV|\benv\b")
API = """
    -X= --method= -H= --header= -q= --jq= -t= --template= --paginate --slurp -i --include --silent
    --cache= -p= --preview= -f= --raw-field= -F= --field=
"""


def forge(argv: Argv) -> Understanding:
    words = argv[1:]
    if any(word.count("/") > 1 for word in _repositories(words)):
        raise NotUnderstood("a repository on another host")
    if any(map(ENVIRONMENT.search, words)) and any(
        word.startswith(("-q", "--jq")) for word in words
    ):
        raise NotUnderstood("the environment in a filter, which has the token")
    plain = _without_repository(words)
    if plain[:1] in (("--version",), ("version",)):
        return acts(f"{argv[0]} version", plain[1:], LOOK, "", NETWORK)
    if plain[:1] == ("api",):
        return _api(argv[0], plain[1:])
    level = FORGE.get(":".join(plain[:2]))
    if level is None or {"--web", "-w"} & set(plain):
        raise NotUnderstood("--web" if level else f"`{' '.join(plain[:2])}`")
    return acts(f"{argv[0]} {' '.join(plain[:2])}", plain[2:], level, FORGE_WHY[level], NETWORK)


def _without_repository(words: Argv) -> Argv:
    """Return the words without `-R`, which may be before or behind the verb."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if len(kept) < 2 and word in ("-R", "--repo"):
            next(rest, None)
        elif not (len(kept) < 2 and word.startswith(("--repo=", "-R"))):
            kept.append(word)
    return tuple(kept)


def _repositories(words: Argv) -> Argv:
    """Return the values of `-R`; `HOST/OWNER/NAME` could send the token to another host."""
    behind = (after for word, after in pairwise(words) if word in ("-R", "--repo"))
    attached = (word for word in words if word.startswith(("-R", "--repo=")))
    return (*behind, *attached)


def _api(program: str, rest: Argv) -> Understanding:
    """Read `api`: fields make it a POST by default; `@file` would send a file."""
    line = read(rest, API)
    if len(line.operands) != 1 or "://" in line.operands[0]:
        raise NotUnderstood("an address that is no path")
    fields = line.values("-f", "--raw-field", "-F", "--field")
    headers = line.values("-H", "--header")
    if any("=@" in given for given in fields) or any("@" in header for header in headers):
        raise NotUnderstood("a file in a field or header")
    overriding = any("override" in header.lower() for header in headers)
    methods = line.values("-X", "--method") or (("POST",) if fields else ("GET",))
    reads = {method.upper() for method in methods} <= {"GET", "HEAD"}
    reads = reads and line.operands[0] != "graphql" and not overriding
    level = LOOK if reads else FULL
    return acts(f"{program} api", rest, level, FORGE_WHY[level], NETWORK)


GRAMMARS: dict[str, Grammar] = {
    **{name: looking(options, NETWORK) for name, options in TABLE.items()},
    **dict.fromkeys(("ping", "ping6"), ping),
    "mtr": mtr,
    "nslookup": nslookup,
    "whois": whois,
    **dict.fromkeys(("nc", "netcat", "ncat"), netcat),
    "openssl": openssl,
    "ntpq": ntpq,
    "chronyc": chronyc,
    **dict.fromkeys(("gh", "glab"), forge),
}
