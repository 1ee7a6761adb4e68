"""curl and wget: fetching only reads; sending changes the other side."""

from __future__ import annotations

import re

from escalation.command_policy.grants import NETWORK
from escalation.command_policy.programs.options import (
    SINKS,
    Grammar,
    Line,
    acts,
    is_scratch,
    literal,
    read,
)
from escalation.command_policy.understanding import FULL, LOOK, NEVER, SAFE, Understanding, Word

# Left out: -K and --config, sockets, quotes for FTP, netrc files, and what writes besides -o.
CURL = """
    -s -S -f -L -I -i -v -k -g -N -a -0 -1 -2 -3 -4 -6 -l -J -O -R -q -# -Z -G --silent
    --show-error --fail --fail-with-body --fail-early --location --head --include --verbose
    --insecure --globoff --no-buffer --compressed --http1.0 --http1.1 --http2
    --http2-prior-knowledge --http3 --ipv4 --ipv6 --get --parallel --no-progress-meter
    --progress-bar --tcp-nodelay --path-as-is --tlsv1.0 --tlsv1.1 --tlsv1.2 --tlsv1.3 --ssl
    --ssl-reqd --disable --remote-name --remote-name-all --anyauth --basic --digest --raw
    --cert-status --remote-header-name --create-dirs --version -V --retry-connrefused
    --retry-all-errors --location-trusted --post301 --junk-session-cookies -j --no-keepalive -A=
    -H= -X= -b= -e= -m= -o= -r= -u= -w= -x= -y= -Y= -z= -C= -d= -F= -T= -E= --user-agent=
    --header= --request= --cookie= --referer= --max-time= --output= --range= --user= --write-out=
    --proxy= --speed-time= --speed-limit= --time-cond= --continue-at= --data= --form=
    --upload-file= --data-raw= --data-binary= --data-urlencode= --data-ascii= --json=
    --form-string= --url-query= --connect-timeout= --retry= --retry-delay= --retry-max-time=
    --resolve= --connect-to= --cacert= --capath= --max-redirs= --limit-rate= --interface= --url=
    --max-filesize= --noproxy= --oauth2-bearer= --ciphers= --tls-max= --proto-default=
    --parallel-max= --aws-sigv4= --output-dir=
"""
SENDS = (
    *("-d", "--data", "--data-raw", "--data-binary", "--data-urlencode", "--data-ascii", "--json"),
    *("-F", "--form", "--form-string", "-T", "--upload-file"),
)
PRINTS_ELSEWHERE = re.compile(r"%output|@")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
FETCHED = frozenset({"http", "https"})
DOCKER_BY_TCP = re.compile(r":237[56](?:\D|\Z)")
"""A Docker engine on these ports would be used without the Docker filter."""
BREAK = re.compile(r"[\r\n]")
"""A line break in a header would start a second request."""
HEADER = re.compile(r"[A-Za-z0-9-]+[:;]")
"""A blank in a name can be a command to a database that reads lines: `DEL session:42`."""


def curl(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], CURL)
    if line is None or line.unsure or any(BREAK.search(word or "") for word in argv):
        return None
    if line.has("-V", "--version"):
        return acts("curl", argv[1:], LOOK, "")
    places = literal((*line.operands, *line.values("--url")))
    if not places or not all(map(_is_fetched, places)) or _hides_a_file(line):
        return None
    methods = line.values("-X", "--request")
    sends = any(method not in LOOKING for method in methods) or _has_body(line)
    replaces = _replaces(methods) or line.has("-T", "--upload-file")
    level = _level(sends, replaces, (*places, *line.values("--resolve", "--connect-to")))
    return _fetch("curl", argv, level, _curl_files(line))


def _replaces(methods: tuple[Word, ...]) -> bool:
    """Return whether a method changes data, as PUT and DELETE do; POST may be a reload."""
    return any(method not in LOOKING | {"POST"} for method in methods)


def _level(sends: bool, replaces: bool, places: tuple[Word, ...]) -> int:
    if not sends:
        return LOOK
    if any(DOCKER_BY_TCP.search(place or "") for place in places):
        return NEVER
    return FULL if replaces else SAFE


def _is_fetched(place: str) -> bool:
    """Accept HTTP only: other protocols (gopher, ftp, telnet …) can send anything."""
    scheme = SCHEME.match(place)
    if scheme is None:
        return ":/" not in place and re.match(r"(?:ftp|dict|ldap|imap|smtp|pop3)\.", place) is None
    return scheme[1].lower() in FETCHED


def _hides_a_file(line: Line) -> bool:
    """Return whether a header, cookie or query is read from a file and sent."""
    if not all(map(_is_harmless_header, line.values("-H", "--header"))):
        return True
    if any("=" not in (value or "") for value in line.values("-b", "--cookie")):
        return True
    if any("@" in (value or "") for value in line.values("--url-query")):
        return True
    if line.has("-G", "--get") and any("@" in (value or "") for value in line.values(*SENDS)):
        return True
    if any(value not in ("http", "https") for value in line.values("--proto-default")):
        return True
    return any(PRINTS_ELSEWHERE.search(value or "") for value in line.values("-w", "--write-out"))


def _is_harmless_header(header: Word) -> bool:
    return bool(header and HEADER.match(header)) and "override" not in (header or "").lower()


def _has_body(line: Line) -> bool:
    bodies = line.has(*SENDS)
    return bodies and not (line.has("-G", "--get") and not line.has("-F", "--form", "-T"))


def _curl_files(line: Line) -> tuple[Word, ...]:
    directories = line.values("--output-dir")
    if line.has("-O", "--remote-name", "--remote-name-all", "-J", "--remote-header-name"):
        return directories or (".",)
    # `#1` stands for a part of the address, which may lead anywhere.
    files = line.values("-o", "--output")
    return (*(None if re.search(r"#\d", path or "") else path for path in files), *directories)


def _fetch(
    program: str, argv: tuple[Word, ...], level: int, files: tuple[Word, ...]
) -> Understanding:
    places = tuple(path for path in files if path not in SINKS)
    writes = not all(map(is_scratch, places))
    return Understanding(
        action=program,
        arguments=argv[1:],
        level=max(level, SAFE) if writes else level,
        grants=frozenset({NETWORK}),
        writes=places,
        why=WHY[level] or ("writes a file" if writes else ""),
    )


WHY = {
    LOOK: "",
    SAFE: "sends something",
    FULL: "changes or removes what is there",
    NEVER: "speaks to a Docker engine past its filter",
}

# Left out: -e, --config, --use-askpass (a program), -i (addresses out of a file), --warc…, cookies.
WGET = """
    -q -v -nv -S -c -N -x -nd -nc -nH -p -k -E -K -np -r -4 -6 -d -t= -T= -w= -l= -A= -R= -D= -I=
    -X= -U= -O= -P= -o= -a= -Q= --quiet --verbose --no-verbose --server-response --spider
    --continue --timestamping --no-check-certificate --no-clobber --no-directories --no-parent
    --recursive --page-requisites --content-on-error --no-cache --no-hsts --inet4-only
    --inet6-only --https-only --show-progress --no-config --trust-server-names
    --content-disposition --version -V --tries= --timeout= --connect-timeout= --read-timeout=
    --dns-timeout= --wait= --level= --output-document= --directory-prefix= --output-file=
    --append-output= --user-agent= --header= --referer= --user= --password= --max-redirect=
    --limit-rate= --progress= --secure-protocol= --ca-certificate= --method= --post-data=
    --post-file= --body-data= --body-file= --start-pos=
"""


def wget(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], WGET)
    if line is None or line.unsure or any(BREAK.search(word or "") for word in argv):
        return None
    if line.has("-V", "--version"):
        return acts("wget", argv[1:], LOOK, "")
    places = literal(line.operands)
    if not places or not all(map(_is_fetched, places)):
        return None
    if not all(map(_is_harmless_header, line.values("--header"))):
        return None
    methods = line.values("--method")
    sends = line.has("--post-data", "--post-file", "--body-data", "--body-file") or any(
        method not in LOOKING for method in methods
    )
    return _fetch("wget", argv, _level(sends, _replaces(methods), places), _wget_files(line))


def _wget_files(line: Line) -> tuple[Word, ...]:
    logs = line.values("-o", "-a", "--output-file", "--append-output")
    if line.has("--spider"):
        return logs
    places = line.values("-O", "--output-document")
    return (*logs, *(places or line.values("-P", "--directory-prefix") or (".",)))


GRAMMARS: dict[str, Grammar] = {"curl": curl, "wget": wget}
