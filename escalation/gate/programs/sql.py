"""Whether one statement of SQL only reads: by its first word and by the functions that it calls.

No option makes a client read-only, so what is not surely harmless counts as a change. A function
can do anything (`pg_terminate_backend`, `lo_export`, `load_extension`): those named here are known.
"""

from __future__ import annotations

import re
from enum import Enum

from escalation.gate.programs.options import names


class Effect(Enum):
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


def effect_of(statement: str) -> Effect:
    text = statement.strip().removesuffix(";").strip()
    if any(sign in text for sign in HIDING):
        return Effect.UNKNOWN
    bare = TEXT.sub("''", text)
    if "'" in bare.replace("''", "") or ";" in bare:
        return Effect.UNKNOWN
    if DESTROYING.search(bare):
        return Effect.DESTROYS
    if not (READING.match(bare) or EXPLAINING.match(bare)) or NOT_READING.search(bare):
        return Effect.CHANGES
    called = {name.lower() for name in CALL.findall(bare)}
    return Effect.READS if called <= FUNCTIONS else Effect.CHANGES
