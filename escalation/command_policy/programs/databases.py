"""Clients of databases with a statement on the command line."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import Enum
from fnmatch import fnmatchcase

from escalation.command_policy.grants import NETWORK
from escalation.command_policy.programs.options import (
    Grammar,
    acts,
    looks,
    names,
    read,
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

VARIABLES = (
    *("PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGSSLMODE", "PGCONNECT_TIMEOUT"),
    *("MYSQL_HOST", "MYSQL_TCP_PORT"),
)
"""Variables that name a database, without passwords and options."""

# SQL statements that only read, by their first word and the functions that they call.
#
# The session is read-only, but a function can do anything (`pg_terminate_backend`, `lo_export`,
# `set_config`): those named here are known to read.


class SqlEffect(Enum):
    REVEALS = "reveals"
    READS = "reads"
    CHANGES = "changes"
    DESTROYS = "destroys"


TEXT = re.compile(r"'(?:[^']|'')*'")
CALL = re.compile(r"(?<![\w.\"`\]])([\w.\"`\]]+)\s*+\(")
READING = re.compile(r"(?:select|show|values|table|describe|desc)\b", re.IGNORECASE)
EXPLAINING = re.compile(r"explain\s+(?:verbose\s+)?select\b", re.IGNORECASE)
NOT_READING = re.compile(
    r"\b(?:into|outfile|dumpfile|insert|update|delete|drop|truncate|alter|create|grant|revoke|copy|call"
    r"|do|execute|lock|set|vacuum|attach|analyze|handler|program|procedure)\b",
    re.IGNORECASE,
)
REVEALING = re.compile(
    r"\b(?:pg_shadow|pg_authid|pg_user_mappings?|rolpassword|authentication_string|mysql\.user"
    r"|mysql\.global_priv)\b",
    re.IGNORECASE,
)
"""Tables and columns of passwords."""
DESTROYING = re.compile(r"\b(?:drop|truncate|program)\b", re.IGNORECASE)
HIDING = ("\\", "--", "/*", "$", "#")
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
    if hidden := next((sign for sign in HIDING if sign in text), ""):
        raise NotUnderstood(f"`{hidden}` in a statement")
    bare = TEXT.sub("''", text)
    if "'" in bare.replace("''", "") or ";" in bare:
        raise NotUnderstood("more than one statement")
    if REVEALING.search(re.sub(r'["`\s]*\.["`\s]*', ".", bare)):
        return SqlEffect.REVEALS
    if DESTROYING.search(bare):
        return SqlEffect.DESTROYS
    if not (READING.match(bare) or EXPLAINING.match(bare)) or NOT_READING.search(bare):
        return SqlEffect.CHANGES
    called = {name.lower() for name in CALL.findall(bare)}
    return SqlEffect.READS if called <= FUNCTIONS else SqlEffect.CHANGES


LEVELS = {
    SqlEffect.REVEALS: (NEVER, "shows passwords"),
    SqlEffect.READS: (LOOK, ""),
    SqlEffect.CHANGES: (FULL, "may change the database"),
    SqlEffect.DESTROYS: (NEVER, "destroys data"),
}


def _statements(argv: Argv, texts: Argv) -> Understanding:
    effects = [LEVELS[effect_of(text)] for text in texts]
    level, why = max(effects, default=(LOOK, ""), key=lambda found: found[0])
    return acts(argv[0], argv[1:], level, why, NETWORK)


# Left out: -f, -v, -o, -L (files), and what is asked for.
PSQL = """
    -h= -p= -U= -d= -c= -l -A -t -x -X -q -w -P= -F= -R= -H -E -b -1 --host= --port= --username=
    --dbname= --command= --list --no-align --tuples-only --expanded --no-psqlrc --quiet
    --no-password --pset= --field-separator= --csv --html --version -V
"""
PSQL_LISTS = re.compile(
    r"\s*\\(?:l|d[tvisunfpmxyFTE]?[S+]*|conninfo|du|dn|encoding)\+?(?: [\w.*]+)?\s*"
)
DATABASE = re.compile(r"[\w.-]+|postgres(?:ql)?://[\w.:@%/-]*")
READ_ONLY = (("PGOPTIONS", "-c default_transaction_read_only=on"),)


def psql(argv: Argv) -> Understanding:
    line = read(argv[1:], PSQL)
    texts = line.values("-c", "--command")
    if not texts and not line.has("-l", "--list", "-V", "--version"):
        raise NotUnderstood("a session: give one statement with -c")
    hosts = line.values("-h", "--host")
    databases = (*line.operands, *line.values("-d", "--dbname"))
    require((*databases, *hosts), DATABASE)
    statements = tuple(text for text in texts if not PSQL_LISTS.fullmatch(text))
    found = _statements(argv, statements)
    return replace(
        found,
        argv=("psql", "-X", "--no-password", *argv[1:]),
        environment=READ_ONLY if found.level == LOOK else (),
        sends_to=(*hosts, *(name for name in databases if "://" in name)),
    )


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
MYSQL_SAFE = ("--skip-reconnect", "--init-command=SET SESSION TRANSACTION READ ONLY")
MYSQLADMIN = names("status ping version processlist variables extended-status")


def mysql(argv: Argv) -> Understanding:
    """Read mysql with one line of statements: lines may begin with client commands (`tee`)."""
    line = read(argv[1:], MYSQL)
    require(line.operands, re.compile(r"[\w.-]+"))
    texts = line.values("-e", "--execute")
    if not texts and not line.has("-V", "--version"):
        raise NotUnderstood("a session: give one statement with -e")
    statements = tuple(text.strip().removesuffix("\\G") for text in texts)
    if found := next((text for text in statements if MYSQL_ITSELF.match(text)), ""):
        raise NotUnderstood(f"`{found}`, a command of the client")
    if any("\n" in text for text in statements):
        raise NotUnderstood("a line break in a statement")
    understood = _statements(argv, statements)
    safe = MYSQL_SAFE if understood.level == LOOK else MYSQL_SAFE[:1]
    return replace(understood, argv=(argv[0], *safe, *argv[1:]))


def mysqladmin(argv: Argv) -> Understanding:
    verbs = read(argv[1:], MYSQL).operands
    if not verbs or not MYSQLADMIN.issuperset(verbs):
        raise NotUnderstood(f"`{' '.join(verbs)}`")
    return looks(argv, NETWORK)


REDIS = """
    -h= -p= -n= -a= -t= --user= --pass= --no-auth-warning --raw --no-raw --csv --json --tls -2 -3
    --insecure --bigkeys --memkeys --hotkeys --scan --pattern= --stat --latency --cacert= --version
    -v
"""
REDIS_ALONE = (
    *("--bigkeys", "--memkeys", "--hotkeys", "--scan", "--stat", "--latency"),
    *("--version", "-v"),
)
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
REDIS_NEVER = names("""
    flushall flushdb shutdown debug module replicaof slaveof failover swapdb migrate script eval
    evalsha function restore
""")


REDIS_PORT = re.compile(r"[12]?6[34]\d\d|70\d\d")
"""Usual ports of redis, its sentinels and clusters."""
REDIS_SECRETS = ("requirepass", "masterauth", "masteruser", "tls-key-file-pass")


def redis(argv: Argv) -> Understanding:
    """Read redis-cli without -x, --pipe (input), --eval, --rdb (a file), -s and -u."""
    line = read(argv[1:], REDIS, to_operand=True)
    # To another service than redis the next line could be a command.
    require(argv, re.compile(r"[^\r\n]*"))
    words = tuple(word.lower() for word in line.operands[:2])
    if not all(map(REDIS_PORT.fullmatch, line.values("-p"))):
        # Each word is a line of its own, which another service could take for a command.
        return acts(argv[0], argv[1:], FULL, "may speak to another service", NETWORK)
    shown = [word.lower() for word in line.operands[2:]] if words == ("config", "get") else []
    if any(fnmatchcase(secret, word) for secret in REDIS_SECRETS for word in shown):
        return acts(argv[0], argv[1:], NEVER, "shows a password", NETWORK)
    if not words:
        if not line.has(*REDIS_ALONE):
            raise NotUnderstood("a session: give a command")
        return looks(argv, NETWORK)
    if {words[0], ":".join(words)} & REDIS_LOOKS:
        return looks(argv, NETWORK)
    if words[0] in REDIS_NEVER:
        return acts(argv[0], argv[1:], NEVER, "empties or stops the database", NETWORK)
    return acts(argv[0], argv[1:], FULL, "changes the database", NETWORK)


GRAMMARS: dict[str, Grammar] = {
    "psql": psql,
    **dict.fromkeys(("mysql", "mariadb"), mysql),
    **dict.fromkeys(("mysqladmin", "mariadb-admin"), mysqladmin),
    **dict.fromkeys(("redis-cli", "valkey-cli"), redis),
}
