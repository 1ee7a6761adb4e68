"""Clients of databases with a statement on the command line."""

from __future__ import annotations

import re
from enum import Enum

from escalation.command_policy.grants import NETWORK
from escalation.command_policy.programs.options import (
    Grammar,
    acts,
    literal,
    looks,
    names,
    read,
    writes,
)
from escalation.command_policy.understanding import FULL, LOOK, NEVER, Understanding, Word

# SQL statements that only read, by their first word and the functions that they call.
#
# No option makes a client read-only, so what is not surely harmless counts as a change. A
# function can do anything (`pg_terminate_backend`, `lo_export`, `load_extension`): those named
# here are known.


class SqlEffect(Enum):
    READS = "reads"
    CHANGES = "changes"
    DESTROYS = "destroys"
    UNKNOWN = "unknown"


TEXT = re.compile(r"'(?:[^']|'')*'")
CALL = re.compile(r"(?<![\w.\"`\]])([\w.\"`\]]+)\s*+\(")
READING = re.compile(r"(?:select|show|values|table|describe|desc)\b", re.IGNORECASE)
EXPLAINING = re.compile(r"explain\s+(?:verbose\s+)?select\b", re.IGNORECASE)
NOT_READING = re.compile(
    r"\b(?:into|outfile|dumpfile|insert|update|delete|drop|truncate|alter|create|grant|revoke|copy|call"
    r"|do|execute|lock|set|vacuum|attach|analyze|handler|program|procedure)\b",
    re.IGNORECASE,
)
DESTROYING = re.compile(r"\b(?:drop|truncate|program)\b", re.IGNORECASE)
HIDING = ("\\", "--", "/*", "$", "\x00", "#")
FUNCTIONS = names("""
    count sum avg min max round floor ceil abs coalesce nullif greatest least length char_length
    lower upper trim substr substring replace concat concat_ws left right split_part to_char
    to_timestamp date_trunc date extract age now current_timestamp current_date current_database
    current_user current_schema current_setting version cast exists in any all some and or not
    over filter values array_agg string_agg json_agg jsonb_agg row_number rank dense_rank lag
    lead group_concat ifnull if unix_timestamp from_unixtime timestampdiff datediff curdate
    database user strftime datetime julianday typeof total printf format interval on using from
    select where as then when else by pg_size_pretty pg_database_size pg_relation_size
    pg_total_relation_size pg_table_size pg_indexes_size pg_is_in_recovery
    pg_postmaster_start_time pg_conf_load_time pg_backend_pid pg_current_wal_lsn
    pg_last_wal_receive_lsn pg_last_wal_replay_lsn pg_wal_lsn_diff pg_last_xact_replay_timestamp
    pg_blocking_pids pg_get_viewdef pg_get_indexdef pg_get_constraintdef to_regclass
    col_description obj_description varchar char numeric decimal int table_info index_list
    foreign_key_list json_extract json_array_length between like limit having
""")


def effect_of(statement: str) -> SqlEffect:
    text = statement.strip().removesuffix(";").strip()
    if any(sign in text for sign in HIDING):
        return SqlEffect.UNKNOWN
    bare = TEXT.sub("''", text)
    if "'" in bare.replace("''", "") or ";" in bare:
        return SqlEffect.UNKNOWN
    if DESTROYING.search(bare):
        return SqlEffect.DESTROYS
    if not (READING.match(bare) or EXPLAINING.match(bare)) or NOT_READING.search(bare):
        return SqlEffect.CHANGES
    called = {name.lower() for name in CALL.findall(bare)}
    return SqlEffect.READS if called <= FUNCTIONS else SqlEffect.CHANGES


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
"""Commands of the client: some start programs or write files."""
SQLITE = """
    -readonly -header -noheader -column -json -csv -line -list -box -table -markdown -html -tabs
    -version -batch -separator= -nullvalue=
"""
SQLITE_LISTS = re.compile(
    r"\.(?:tables|schema|databases|indexes|indices|dbinfo|stats)(?: [\w%]+)?\Z"
)
WHY = {
    SqlEffect.READS: (LOOK, ""),
    SqlEffect.CHANGES: (FULL, "may change the database"),
    SqlEffect.DESTROYS: (NEVER, "destroys data"),
}


def _statements(
    action: str, rest: tuple[Word, ...], texts: tuple[str, ...]
) -> Understanding | None:
    effects = {effect_of(text) for text in texts}
    if SqlEffect.UNKNOWN in effects:
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
    """Read mysql with one line of statements: lines may begin with client commands (`tee`)."""
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
    """Read sqlite3 with dot commands that only list: others can run programs."""
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
    if any(text.lstrip().startswith(".") for text in statements) or SqlEffect.UNKNOWN in effects:
        return None
    if effects <= {SqlEffect.READS}:
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
"""To another service than redis the next line could be a command."""
REDIS_NEVER = names("""
    flushall flushdb shutdown debug module replicaof slaveof failover swapdb migrate script eval
    evalsha function restore
""")


def redis(argv: tuple[Word, ...]) -> Understanding | None:
    """Read redis-cli without -x, --pipe (input), --eval, --rdb (a file), -s and -u."""
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
