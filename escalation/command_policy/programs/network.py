"""Programs that query the network: names, routes, ports, certificates."""

from __future__ import annotations

import re
from dataclasses import replace

from escalation.command_policy.grants import HOST, NETWORK, PROCESSES
from escalation.command_policy.programs.options import (
    Grammar,
    Line,
    acts,
    literal,
    looks,
    names,
    read,
)
from escalation.command_policy.understanding import FULL, LOOK, Understanding, Word

DNS_WORD = re.compile(r"[\w.:@+=/-]+\Z")
NAME = re.compile(r"[\w.:/@+%-]+\Z")
PING = "-4 -6 -A -D -n -O -q -r -v -a -c= -i= -I= -l= -m= -M= -p= -Q= -s= -S= -t= -T= -w= -W="
TRACE = "-4 -6 -I -T -U -n -r -e -d -A -b -f= -i= -m= -p= -q= -w= -z= -N= -t= -s="
MTR = """
    -r -w -c= -n -b -4 -6 -u -T -P= -i= -m= -s= -z -j -C -x --report --report-wide
    --report-cycles= --no-dns --json --csv --tcp --udp --port= --show-ips
"""
NMAP = (
    "-sT -sn -sV -Pn -p= -F -n -R -v -A -O -T= -T4 -T3 --open --reason --top-ports= -4 -6 -oN= -oG="
)
NETCAT = "-z -v -n -u -w= -4 -6 -i= -r -t"
SS = """
    -t -u -l -n -p -a -e -o -m -i -s -x -w -4 -6 -0 -r -H -O -Z -b -d -z -S -M -T --tcp --udp
    --listening --numeric --processes --all --extended --options --memory --info --summary --unix
    --raw --ipv4 --ipv6 --resolve --no-header --oneline -f= --family= -A= --query= --socket= -N=
    --sctp --packet
"""
IP_OPTIONS = """
    -4 -6 -0 -s -d -r -o -br -c -j -p -a -h -N -t -stats -details -resolve -oneline -brief -color?
    -json -pretty -all -human -statistics -f= -family= -n= -netns=
"""
IP_OBJECTS = names("""
    address addr a link l route r rule neighbour neighbor neigh n maddress maddr mroute ntable
    tunnel token tcp_metrics netconf
""")
IP_LOOKS = frozenset({"show", "list", "lst", "ls", "sh", "l", "get"})  # "s" may be "set"
S_CLIENT = """
    -connect= -servername= -showcerts -status -brief -prexit -quiet -verify= -verify_return_error
    -CAfile= -CApath= -cert= -key= -tls1 -tls1_1 -tls1_2 -tls1_3 -starttls= -alpn= -noservername
    -no_ign_eof -cipher= -ciphersuites= -4 -6 -host= -port= -verify_hostname= -state -msg
    -tlsextdebug
"""
OPENSSL_LOOKS = {
    "version": "-a -b -d -f -o -p -v -r -e",
    "x509": """
        -in= -noout -text -dates -startdate -enddate -subject -issuer -serial -fingerprint
        -checkend= -ext= -inform= -nameopt= -email -purpose -pubkey -modulus -sha256 -sha1 -md5
        -ocsp_uri -subject_hash -issuer_hash -certopt= -checkhost= -checkip= -dateopt=
    """,
    "verify": "-CAfile= -CApath= -untrusted= -verbose -show_chain -purpose= -partial_chain",
    "crl": "-in= -noout -text -inform= -lastupdate -nextupdate -issuer",
    "req": "-in= -noout -text -subject -verify -inform= -pubkey -modulus",
    "ciphers": "-v -V -s -tls1_2 -tls1_3 -stdname",
    "dgst": "-sha256 -sha1 -md5 -sha512 -hex -r",
}


def asks(options: str, *grants: str) -> Grammar:
    """Return a grammar for hosts and known options. A computed name could carry data out."""

    def grammar(argv: tuple[Word, ...]) -> Understanding | None:
        line = read(argv[1:], options)
        return looks(argv, *grants) if line and _is_literal(line) else None

    return grammar


def _is_literal(line: Line) -> bool:
    words = literal(line.operands)
    return words is not None and not line.unsure and all(map(NAME.match, words))


def dig(argv: tuple[Word, ...]) -> Understanding | None:
    """Read dig without -f (queries of a file), -k and -y (keys)."""
    line = read(argv[1:], "-4 -6 -b= -c= -i -m -p= -q= -r -t= -u -v -x= -h")
    words = literal(line.operands) if line else None
    if line is None or words is None or line.unsure:
        return None
    return looks(argv, NETWORK) if all(map(DNS_WORD.match, words)) else None


def nslookup(argv: tuple[Word, ...]) -> Understanding | None:
    """Read nslookup with a name: without one it reads commands."""
    words = literal(argv[1:])
    named = words and not all(word.startswith("-") for word in words)
    return looks(argv, NETWORK) if named and all(map(NAME.match, words or ())) else None


def getent(argv: tuple[Word, ...]) -> Understanding | None:
    """Read getent without -s, which loads a library."""
    words = literal(argv[1:])
    if words is None or any(word.startswith("-") for word in words):
        return None
    return looks(argv, NETWORK)


def whois(argv: tuple[Word, ...]) -> Understanding | None:
    """Read whois without ports, by which it could query any service."""
    line = read(argv[1:], "-h= -H -a -d")
    if line is None or not _is_literal(line) or len(line.operands) != 1:
        return None
    hosts = literal(line.values("-h")) or ()
    return looks(argv, NETWORK) if all(re.match(r"[\w.-]+\Z", host) for host in hosts) else None


def sockets(argv: tuple[Word, ...]) -> Understanding | None:
    """Read ss without -K (closes sockets), -D (writes a file), -F (reads one)."""
    line = read(argv[1:], SS)
    return looks(argv, NETWORK, PROCESSES) if line and not line.unsure else None


def netstat(argv: tuple[Word, ...]) -> Understanding | None:
    return looks(argv, NETWORK, PROCESSES) if literal(argv[1:]) is not None else None


def netcat(argv: tuple[Word, ...]) -> Understanding | None:
    """Read nc as a test of a port."""
    line = read(argv[1:], NETCAT)
    if line is None or not _is_literal(line):
        return None
    return looks(argv, NETWORK) if line.has("-z") else None


def nmap(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], NMAP)
    if line is None or not _is_literal(line) or line.has("-oN", "-oG"):
        return None
    return acts("nmap", argv[1:], FULL, "scans hosts", NETWORK)


def ip(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], IP_OPTIONS, to_operand=True)
    words = literal(line.operands) if line else None
    if line is None or words is None or line.unsure or line.has("-all", "-a", "-n", "-netns"):
        return None
    if not words:
        return looks(argv)
    if words[0] not in IP_OBJECTS:
        return None
    if len(words) == 1 or words[1] in IP_LOOKS:
        return acts(f"ip {words[0]}", words[1:], LOOK, "", NETWORK)
    return acts(f"ip {words[0]}", words[1:], FULL, "changes the host's network", HOST)


def openssl(argv: tuple[Word, ...]) -> Understanding | None:
    words = literal(argv[1:])
    if not words:
        return None
    if words[0] == "s_client":
        found = acts("openssl s_client", words[1:], LOOK, "", NETWORK)
        return replace(found, sends_input=True) if read(words[1:], S_CLIENT) else None
    options = OPENSSL_LOOKS.get(words[0])
    if options is None or read(words[1:], options) is None:
        return None
    return acts(f"openssl {words[0]}", words[1:], LOOK, "")


GRAMMARS: dict[str, Grammar] = {
    "ping": asks(PING, NETWORK),
    "ping6": asks(PING, NETWORK),
    "traceroute": asks(TRACE, NETWORK),
    "tracepath": asks("-4 -6 -n -b -l= -m= -p=", NETWORK),
    "mtr": asks(MTR, NETWORK),
    "host": asks("-4 -6 -a -C -d -l -r -s -T -U -v -w -c= -N= -R= -t= -W= -p=", NETWORK),
    "whois": whois,
    "ss": sockets,
    "pg_isready": asks("-h= -p= -d= -U= -t= -q --host= --port= --dbname= --username=", NETWORK),
    "dig": dig,
    "nslookup": nslookup,
    "getent": getent,
    "nc": netcat,
    "netcat": netcat,
    "ncat": netcat,
    "nmap": nmap,
    "ip": ip,
    "openssl": openssl,
    "netstat": netstat,
}
