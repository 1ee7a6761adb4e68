"""Clients of databases: Tier 1 reads in a session that can only read."""

from __future__ import annotations

import pytest

from escalation.command_policy.programs.databases import SqlEffect, effect_of
from escalation.command_policy.understanding import FULL, LOOK, NEVER, NotUnderstood
from tests.escalation.command_policy.vectors import (
    Row,
    assert_is,
    assert_not_understood,
    judge,
    understood,
)
from tests.tables import each_row

ROWS = [
    ("psql -h db -U app -c 'SELECT count(*) FROM orders'", LOOK),
    ("psql -h db -l", LOOK),
    ("psql -h db shop app -c '\\dt'", LOOK),
    ("psql -h db -c '\\l' -c '\\d+ orders' -c 'SHOW all'", LOOK),
    ("psql postgresql://app:secret@db:5432/shop -c 'TABLE orders'", LOOK),
    ("psql --version", LOOK),
    ("psql -h db -c 'DELETE FROM orders'", FULL),
    ("psql -h db -c 'SELECT 1' -c 'VACUUM'", FULL),
    ("psql -h db -c 'SELECT pg_terminate_backend(1)'", FULL),
    ("psql -h db -c \"SELECT set_config('transaction_read_only', 'off', false)\"", FULL),
    ("psql -h db -c \"SELECT nextval('orders_id_seq')\"", FULL),
    ("psql -h db -c \"SELECT pg_read_file('/etc/passwd')\"", FULL),
    ("psql -h db -c \"SELECT * FROM dblink('x', 'y')\"", FULL),
    ("psql -h db -c 'EXPLAIN ANALYZE DELETE FROM orders'", FULL),
    ("psql -h db -c 'DROP TABLE orders'", NEVER),
    ("psql -h db -c 'SELECT * FROM pg_shadow'", NEVER),
    ("psql -h db -c 'SELECT * FROM pg_catalog . \"pg_authid\"'", NEVER),
    ("mysql -h db -e 'SELECT * FROM `mysql` . `user`'", NEVER),
    ("redis-cli -p 6380 get session:1", LOOK),
    ("redis-cli -p 26379 sentinel masters", LOOK),
    ("redis-cli -p 11211 get flush_all", FULL),
    ("redis-cli config get maxmemory", LOOK),
    ("redis-cli config get requirepass", NEVER),
    ("redis-cli CONFIG GET 'req*'", NEVER),
    ("mysql -h db -e 'SHOW PROCESSLIST' shop", LOOK),
    ("mariadb -h db -uapp -psecret -e 'SELECT 1\\G'", LOOK),
    ("mysql -h db -e 'UPDATE a SET b = 1'", FULL),
    ("mysql -h db -e 'TRUNCATE a'", NEVER),
    ("mysqladmin -h db status", LOOK),
    ("redis-cli -h cache info memory", LOOK),
    ("redis-cli -h cache echo hello", LOOK),
    ("redis-cli CONFIG GET maxmemory", LOOK),
    ("redis-cli --bigkeys", LOOK),
    ("valkey-cli -n 1 TTL key", LOOK),
    ("redis-cli CONFIG SET dir /root", FULL),
    ("redis-cli set a b", FULL),
    ("redis-cli flushall", NEVER),
    ("redis-cli EVAL 'return 1' 0", NEVER),
]


@each_row(("command", "level"), ROWS)
def test_a_statement_has_its_level(command, level):
    assert_is(Row(command, command.split()[0], level, "network"))


@each_row(
    "command",
    [
        "psql -h db",
        "psql -f evil.sql",
        "psql -h db -c 'SELECT 1' -f evil.sql",
        "psql -h db -c 'SELECT 1' -o /etc/x",
        "psql -h db -c 'SELECT 1' -L /etc/x",
        "psql -h db -v x=y -c 'SELECT 1'",
        "psql -h db -W -c 'SELECT 1'",
        "psql -h db -c '\\! evil'",
        "psql -h db -c '\\o /etc/x'",
        "psql -h db -c '\\i evil.sql'",
        "psql -h db -c '\\copy orders to /etc/x'",
        "psql -h db -c 'SELECT 1 \\g | evil'",
        "psql -h db -c 'SELECT 1; DROP TABLE a'",
        "psql 'host=db options=evil' -c 'SELECT 1'",
        "psql -d 'postgres://db/x?options=-c%20x' -c 'SELECT 1'",
        "psql -h '/tmp' -c 'SELECT 1'",
        "mysql -h db",
        "mysql -h db -e 'SELECT 1\nsystem evil'",
        "mysql -h db -e '\\! evil'",
        "mysql -h db -e 'system evil'",
        "mysql -h db -e 'source x'",
        "mysql --pager=evil -e 'SELECT 1'",
        "mysql --init-command=evil -e 'SELECT 1'",
        "mysql --defaults-file=x -e 'SELECT 1'",
        "mysqladmin shutdown",
        "mysqladmin",
        "redis-cli",
        "redis-cli -x set a",
        "redis-cli --pipe",
        "redis-cli --eval evil.lua",
        "redis-cli --rdb /etc/x",
        "redis-cli -u redis://x get a",
        "redis-cli get 'a\nFLUSHALL'",
        "mongosh",
        "sqlite3 app.db 'SELECT 1'",
    ],
)
def test_what_could_do_more_is_not_understood(command):
    assert_not_understood(command)


@each_row(
    ("statement", "effect"),
    [
        ("select a, count(*) from t where b = 'x;y' group by a;", SqlEffect.READS),
        ("EXPLAIN SELECT * FROM t", SqlEffect.READS),
        ("VALUES (1, 2)", SqlEffect.READS),
        ("explain analyze delete from t", SqlEffect.CHANGES),
        ("SELECT * INTO copy FROM t", SqlEffect.CHANGES),
        ("SELECT lo_export(1, 'x')", SqlEffect.CHANGES),
        ('SELECT "pg_reload_conf" ()', SqlEffect.CHANGES),
        ("WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d", SqlEffect.CHANGES),
        ("SET transaction_read_only = off", SqlEffect.CHANGES),
        ("COPY t TO PROGRAM 'evil'", SqlEffect.DESTROYS),
        ("TRUNCATE t", SqlEffect.DESTROYS),
    ],
)
def test_a_statement_is_judged_by_its_words(statement, effect):
    assert effect_of(statement) is effect


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT pg_reload_conf/**/()",
        "SELECT 'it''s'; DELETE FROM t",
        "SELECT 'open",
        "SELECT 1 -- x",
        "SELECT $$x$$",
    ],
)
def test_a_statement_that_hides_something_is_not_understood(statement):
    with pytest.raises(NotUnderstood):
        effect_of(statement)


def test_psql_reads_in_a_session_that_cannot_write():
    looking = understood("psql -h db -c 'SELECT 1'")
    changing = understood("psql -h db -c 'DELETE FROM a'")

    assert looking.argv == ("psql", "-X", "--no-password", "-h", "db", "-c", "SELECT 1")
    assert looking.environment == (("PGOPTIONS", "-c default_transaction_read_only=on"),)
    assert changing.environment == ()


def test_mysql_reads_in_a_session_that_cannot_write():
    looking = understood("mysql -h db -e 'SELECT 1'").argv
    changing = understood("mysql -h db -e 'DELETE FROM a'").argv

    assert "--init-command=SET SESSION TRANSACTION READ ONLY" in looking
    assert changing[:3] == ("mysql", "--skip-reconnect", "-h")


def test_the_variables_of_a_decision_are_complete():
    assert dict(judge("psql -h db -c 'SELECT 1'").environment).keys() == {"PGOPTIONS"}
