"""curl and wget: fetching only reads; sending changes the other side."""

from __future__ import annotations

import re
from dataclasses import replace

from escalation.command_policy.grants import DOCKER, HTTP
from escalation.command_policy.programs.options import Grammar, Line, acts, looks, read, require
from escalation.command_policy.understanding import (
    FULL,
    LOOK,
    NEVER,
    SAFE,
    Argv,
    NotUnderstood,
    Understanding,
)

# Left out: -K and --config, proxies, interfaces, other addresses for a name, quotes for
# FTP, netrc files, --next, and what sends a login or a body to where a redirection leads.
CURL = """
    -s -S -f -L -I -i -v -k -g -N -0 -1 -2 -3 -4 -6 -J -O -R -q -# -Z -G -j --silent --show-error
    --fail --fail-with-body --fail-early --location --head --include --verbose --insecure --globoff
    --no-buffer --compressed --http1.0 --http1.1 --http2 --http2-prior-knowledge --http3 --ipv4
    --ipv6 --get --parallel --no-progress-meter --progress-bar --tcp-nodelay --path-as-is --tlsv1.0
    --tlsv1.1 --tlsv1.2 --tlsv1.3 --ssl --ssl-reqd --disable --remote-name --remote-name-all
    --anyauth --basic --digest --raw --cert-status --remote-header-name --create-dirs --version -V
    --retry-connrefused --retry-all-errors --junk-session-cookies --no-keepalive -A= -H= -X= -b= -c=
    -D= -e= -m= -o= -r= -u= -w= -y= -Y= -z= -C= -d= -F= -T= --user-agent= --header= --request=
    --cookie= --cookie-jar= --dump-header= --referer= --max-time= --output= --range= --user=
    --write-out= --speed-time= --speed-limit= --time-cond= --continue-at= --data= --form=
    --upload-file= --data-raw= --data-binary= --data-urlencode= --data-ascii= --json= --form-string=
    --url-query= --connect-timeout= --retry= --retry-delay= --retry-max-time= --cacert= --capath=
    --max-redirs= --limit-rate= --url= --max-filesize= --oauth2-bearer= --ciphers= --tls-max=
    --parallel-max= --aws-sigv4= --output-dir= --unix-socket=
"""
CURL_SAFE = (
    *("-q", "--globoff", "--proto", "=http,https", "--proto-redir", "=http,https"),
    *("--max-time", "120", "--proxytunnel", "--suppress-connect-headers"),
)
"""No .curlrc, no `{}` and `[]` in addresses, no other protocols. A later --max-time wins. By a
tunnel of the proxy it gets the answer of the server itself, with its headers."""
BODY = (
    *("-d", "--data", "--data-raw", "--data-binary", "--data-urlencode", "--data-ascii", "--json"),
)
FORM = ("-F", "--form", "--form-string")
UPLOAD = ("-T", "--upload-file")
MODES = {"-G": ("-G", "--get"), "-I": ("-I", "--head"), "-d": BODY, "-F": FORM, "-T": UPLOAD}
TOGETHER = ({"-G", "-d"},)
LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
METHOD = re.compile(r"[A-Z]{3,20}")
URL = re.compile(
    r"(?:https?://)?(?:[^/?#@\s\\]+@)?(?P<host>(?:\w[\w.-]*|\[[0-9a-f:.]+\])(?::\d{1,5})?)"
    r"(?:[/?#]\S*)?",
    re.IGNORECASE,
)
DOCKER_BY_TCP = re.compile(r".*:237[56]")
"""A Docker engine on these ports would be used without the Docker filter."""
METADATA = re.compile(
    r"169\.254\.|100\.100\.100\.200|168\.63\.129\.16|fd00:ec2:|\Ametadata\b|\A(?:0x|0\d|\d+(?::|\Z))"
    r"|\A\d+(?:\.\w+){1,2}(?::|\Z)|\A(?:\d+\.)*0[x\d]|::ffff:"
)
"""Metadata services, and numbers that may be the address of one. On another host no proxy asks."""
DOCKER_SOCKETS = frozenset({"/run/docker.sock", "/var/run/docker.sock"})
DOCKER_LOOKS = re.compile(
    r"http://\w+/(?:v1\.\d+/)?(?:_ping|version|info|system/df|(?:containers|images)/json"
    r"|networks|volumes|containers/[\w.-]+/(?:json|logs|stats|top))(?:\?[\w=&.,:%\"{}\[\]-]*)?"
)
BREAK = re.compile(r"[^\r\n]*")
"""A line break in a header would start a second request."""
HEADER = re.compile(r"(?!.*override)[a-z0-9-]+[:;].*", re.IGNORECASE)
"""A blank in a name can be a command to a database that reads lines: `DEL session:42`."""
SINKS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "-"})
WHY = {
    LOOK: "",
    SAFE: "sends something",
    FULL: "changes or removes what is there",
    NEVER: "speaks to a Docker engine past its filter",
}


def curl(argv: Argv) -> Understanding:
    line = read(argv[1:], CURL)
    require(argv, BREAK)
    executed = ("curl", *CURL_SAFE, *argv[1:])
    if line.has("-V", "--version"):
        return replace(looks(argv, HTTP), argv=executed)
    hosts = _hosts((*line.operands, *line.values("--url")))
    mode = _mode(line)
    _check_files(line, mode)
    methods = line.values("-X", "--request")
    require(methods, METHOD)
    level = LOOK
    if mode in ("-d", "-F") or "POST" in methods:
        # A redirection may lead the body to another host.
        level = FULL if line.has("-L", "--location") else SAFE
    if mode == "-T" or not LOOKING.union({"POST"}).issuperset(methods):
        level = FULL
    if any(map(DOCKER_BY_TCP.match, hosts)):
        level = NEVER
    if sockets := line.values("--unix-socket"):
        _check_docker(sockets, (*line.operands, *line.values("--url")), level)
    return replace(
        acts("curl", argv[1:], level, WHY[level], DOCKER if sockets else HTTP),
        argv=executed,
        sends_to=hosts if level == SAFE else (),
        writes=_written(line),
    )


def _check_docker(sockets: Argv, places: Argv, level: int) -> None:
    """Allow to read containers by the engine's socket; other changes than by docker are denied."""
    if level > LOOK or not DOCKER_SOCKETS.issuperset(sockets):
        raise NotUnderstood("a socket: use docker")
    require(places, DOCKER_LOOKS)


def _hosts(places: Argv) -> Argv:
    """Return the hosts of addresses, which are all of HTTP."""
    if not places:
        raise NotUnderstood("no address")
    found = [URL.fullmatch(place) for place in places]
    if None in found:
        raise NotUnderstood(f"the address `{places[found.index(None)]}`")
    hosts = tuple(match["host"].lower() for match in found if match)
    if metadata := next(filter(METADATA.search, hosts), ""):
        raise NotUnderstood(f"{metadata}, which hands out credentials of a cloud,")
    return hosts


def _mode(line: Line) -> str:
    """Return how the request is made: of two ways curl would choose one."""
    modes = {mode for mode, options in MODES.items() if line.has(*options)}
    if len(modes) > 1 and modes not in TOGETHER:
        raise NotUnderstood(f"two ways to make a request ({' and '.join(sorted(modes))})")
    return "-G" if "-G" in modes else next(iter(modes), "")


def _check_files(line: Line, mode: str) -> None:
    """Deny headers and queries that are read from files."""
    require(line.values("-H", "--header"), HEADER)
    queries = line.values("--url-query", *(BODY if mode == "-G" else ()))
    if any("@" in query for query in queries):
        raise NotUnderstood("a file in a query")


def _written(line: Line) -> Argv:
    named = line.values("-o", "--output", "-D", "--dump-header", "-c", "--cookie-jar")
    if line.has("-O", "--remote-name", "--remote-name-all"):
        named += (".", *line.values("--output-dir"))
    if any("%output" in text for text in line.values("-w", "--write-out")):
        named += ("%output",)
    return tuple(path for path in named if path not in SINKS)


# Left out: -e, --config, --use-askpass (a program), -i (addresses out of a file), --warc…, and
# everything that sends.
WGET = """
    -q -v -nv -S -c -N -x -nd -nc -nH -p -k -E -K -np -r -4 -6 -d -t= -T= -w= -l= -A= -R= -D= -I=
    -X= -U= -O= -P= -o= -a= -Q= --quiet --verbose --no-verbose --server-response --spider
    --continue --timestamping --no-check-certificate --no-clobber --no-directories --no-parent
    --recursive --page-requisites --content-on-error --no-cache --no-hsts --inet4-only
    --inet6-only --https-only --show-progress --no-config --trust-server-names
    --content-disposition --version -V --tries= --timeout= --connect-timeout= --read-timeout=
    --dns-timeout= --wait= --level= --output-document= --directory-prefix= --output-file=
    --append-output= --user-agent= --header= --referer= --user= --password= --max-redirect=
    --limit-rate= --progress= --secure-protocol= --ca-certificate= --start-pos=
"""


def wget(argv: Argv) -> Understanding:
    line = read(argv[1:], WGET)
    require(argv, BREAK)
    require(line.values("--header"), HEADER)
    if not line.has("-V", "--version"):
        _hosts(line.operands)
    logs = line.values("-o", "-a", "--output-file", "--append-output")
    files = line.values("-O", "--output-document") or ("." for _ in line.operands)
    written = (*logs, *(() if line.has("--spider") else files))
    return replace(
        looks(argv, HTTP),
        argv=("wget", "--no-config", "--no-hsts", *argv[1:]),
        writes=tuple(path for path in written if path not in SINKS),
    )


GRAMMARS: dict[str, Grammar] = {"curl": curl, "wget": wget}
