"""Clients of databases, with a statement on the command line: what comes otherwise is not seen."""

from __future__ import annotations

import re

from escalation.gate.doors import NETWORK
from escalation.gate.programs.answers import Grammar, acts, looks, writes
from escalation.gate.programs.options import literal, names, read
from escalation.gate.programs.sql import Effect, effect_of
from escalation.gate.understanding import FULL, LOOK, NEVER, Understanding, Word

# Left out: -f, -v, -o, -L (files), and what is asked for.
PSQL = """
    -h= -p= -U= -d= -c= -l -A -t -x -X -q -w -P= -F= -R= -H -E -b -1 --host= --port= --username=
    --dbname= --command= --list --no-align --tuples-only --expanded --no-psqlrc --quiet
    --no-password --pset= --field-separator= --csv --html --version -V
"""
PSQL_LISTS = re.compile(
    r"\\(?:l|d[tvisunfpmxyFTE]?[S+]*|conninfo|du|dn|encoding)\+?(?: [\w.*]+)?\Z"
)
DATABASE = re.compile(r"(?:[\w.-]+|postgres(?:ql)?://[\w.:@%/-]*)\Z")
MYSQL = """
    -h= -P= -u= -p? -D= -e= -N -B -t -s -E -r -q -C --host= --port= --user= --password? --database=
    --execute= --batch --table --silent --vertical --skip-column-names --raw --protocol=
    --connect-timeout= --ssl-mode= -V --version --no-beep --skip-ssl
"""
MYSQL_ITSELF = re.compile(
    r"(?:system|source|tee|notee|pager|nopager|edit|delimiter|charset|connect|prompt|rehash|use|\.)"
    r"(?:\W|\Z)",
    re.IGNORECASE,
)
"""Commands to the client: some start programs or write files, on this side."""
SQLITE = """
    -readonly -header -noheader -column -json -csv -line -list -box -table -markdown -html -tabs
    -version -batch -separator= -nullvalue=
"""
SQLITE_LISTS = re.compile(
    r"\.(?:tables|schema|databases|indexes|indices|dbinfo|stats)(?: [\w%]+)?\Z"
)
WHY = {
    Effect.READS: (LOOK, ""),
    Effect.CHANGES: (FULL, "may change the database"),
    Effect.DESTROYS: (NEVER, "destroys data"),
}


def _statements(
    action: str, rest: tuple[Word, ...], texts: tuple[str, ...]
) -> Understanding | None:
    effects = {effect_of(text) for text in texts}
    if Effect.UNKNOWN in effects:
        return None
    level, why = max((WHY[effect] for effect in effects), key=lambda found: found[0])
    return acts(action, rest, level, why, NETWORK)


def psql(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], PSQL)
    if line is None or line.unsure:
        return None
    if line.has("-V", "--version"):
        return looks(argv)
    names = literal((*line.operands[:1], *line.values("-d", "--dbname"), *line.values("-h")))
    texts = literal(line.values("-c", "--command"))
    if not texts and not line.has("-l", "--list"):
        return None
    if names is None or not all(map(DATABASE.match, names)):
        return None
    statements = tuple(text for text in texts or () if not PSQL_LISTS.match(text.strip()))
    if not statements:
        return looks(argv, NETWORK)
    return _statements("psql", argv[1:], statements)


def mysql(argv: tuple[Word, ...]) -> Understanding | None:
    """Lines matter: its own commands (`system`, `tee`) are looked for at the start of each."""
    line = read(argv[1:], MYSQL)
    if line is None or line.unsure:
        return None
    if line.has("-V", "--version"):
        return looks(argv)
    texts = literal(line.values("-e", "--execute"))
    if not texts or any("\n" in text for text in texts):
        return None
    statements = tuple(text.strip().removesuffix("\\G") for text in texts)
    if any(map(MYSQL_ITSELF.match, statements)):
        return None
    return _statements("mysql", argv[1:], statements)


def mysqladmin(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], MYSQL)
    verbs = literal(line.operands) if line else None
    if line is None or line.unsure or not verbs:
        return None
    looking = {"status", "ping", "version", "processlist", "variables", "extended-status"}
    return looks(argv, NETWORK) if looking.issuperset(verbs) else None


def sqlite(argv: tuple[Word, ...]) -> Understanding | None:
    """Its dot commands can run programs: only those that list are known."""
    line = read(argv[1:], SQLITE)
    words = literal(line.operands) if line else None
    if line is None or words is None or line.unsure:
        return None
    if line.has("-version"):
        return looks(argv)
    if len(words) < 2 or "?" in words[0] or words[0].startswith("file:"):
        return None
    statements = tuple(text for text in words[1:] if not SQLITE_LISTS.match(text.strip()))
    effects = {effect_of(text) for text in statements}
    if any(text.lstrip().startswith(".") for text in statements) or Effect.UNKNOWN in effects:
        return None
    if effects <= {Effect.READS}:
        return looks(argv)
    calls_unknown = any(
        re.search(r"\b(?:load_extension|edit|writefile|attach|vacuum)\b", s, re.I)
        for s in statements
    )
    return None if calls_unknown else writes("sqlite3", argv[1:], words[:1])


REDIS = """
    -h= -p= -n= -a= -t= --user= --pass= --no-auth-warning --raw --no-raw --csv --json --tls -2 -3
    --insecure --bigkeys --memkeys --hotkeys --scan --pattern= --stat --latency --cacert= --version
    -v
"""
REDIS_ALONE = ("--bigkeys", "--memkeys", "--hotkeys", "--scan", "--stat", "--latency")
REDIS_LOOKS = names("""
    info ping get mget strlen exists type ttl pttl keys scan dbsize llen lrange lindex hget
    hgetall hkeys hlen hmget hscan hexists scard smembers sismember sscan zcard zrange zscore
    zrangebyscore zcount zscan xlen xrange xrevrange xpending lastsave time role randomkey
    command echo getrange bitcount pfcount object:encoding object:idletime object:freq
    object:refcount config:get client:list client:info client:id slowlog:get slowlog:len
    memory:usage memory:stats memory:doctor latency:latest latency:history latency:doctor
    cluster:info cluster:nodes cluster:slots cluster:shards xinfo:stream xinfo:groups
    xinfo:consumers module:list acl:whoami acl:list pubsub:channels pubsub:numsub
    sentinel:masters sentinel:get-master-addr-by-name
""")
BREAK = re.compile(r"[\r\n]")
"""To a service that reads line by line, and is none of redis, the next line would be a command."""
REDIS_NEVER = names("""
    flushall flushdb shutdown debug module replicaof slaveof failover swapdb migrate script eval
    evalsha function restore
""")


def redis(argv: tuple[Word, ...]) -> Understanding | None:
    """Left out: -x and --pipe (from the input), --eval, --rdb (a file), -s and -u."""
    line = read(argv[1:], REDIS, to_operand=True)
    words = literal(line.operands) if line else None
    if line is None or line.unsure or words is None or any(map(BREAK.search, words)):
        return None
    if not words:
        return looks(argv, NETWORK) if line.has(*REDIS_ALONE, "--version", "-v") else None
    first = words[0].lower()
    both = f"{first}:{words[1].lower()}" if len(words) > 1 else first
    if first in REDIS_LOOKS or both in REDIS_LOOKS:
        return looks(argv, NETWORK)
    if first in REDIS_NEVER:
        return acts("redis-cli", argv[1:], NEVER, "empties or stops the database", NETWORK)
    return acts("redis-cli", argv[1:], FULL, "changes the database", NETWORK)


def etcdctl(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(
        argv[1:],
        "--endpoints= --prefix --keys-only --limit= -w= --write-out= --cacert= \
        --print-value-only --cluster --command-timeout= --cert= --key=",
    )
    words = literal(line.operands) if line else None
    if line is None or line.unsure or not words:
        return None
    looking = {("get",), ("member", "list"), ("endpoint", "health"), ("endpoint", "status")}
    reads = words[:1] in looking or words[:2] in looking or words[:2] == ("alarm", "list")
    return looks(argv, NETWORK) if reads else None


GRAMMARS: dict[str, Grammar] = {
    "psql": psql,
    "mysql": mysql,
    "mariadb": mysql,
    "mysqladmin": mysqladmin,
    "mariadb-admin": mysqladmin,
    "sqlite3": sqlite,
    "redis-cli": redis,
    "valkey-cli": redis,
    "etcdctl": etcdctl,
}
