"""Programs that ask the network, and databases behind it."""

from __future__ import annotations

from escalation.command_policy.programs.databases import SqlEffect, effect_of
from escalation.command_policy.understanding import FULL, LOOK, NEVER, SAFE
from tests.escalation.command_policy.programs.tables import Row, assert_is, understood
from tests.tables import each_row

NET = "network"
ROWS = [
    Row("redis-cli -h cache echo hello", "redis-cli", LOOK, NET),
    Row("ping -c 1 example.org", "ping", LOOK, NET),
    Row("dig +short example.org @1.1.1.1", "dig", LOOK, NET),
    Row("nslookup example.org", "nslookup", LOOK, NET),
    Row("getent hosts localhost", "getent", LOOK, NET),
    Row("nc -zv -w 2 localhost 80", "nc", LOOK, NET),
    Row("nc -zvw3 localhost 80", "nc", LOOK, NET),
    Row("ss -tlnp", "ss", LOOK, "network processes"),
    Row("ss -tn sport = :80", "ss", LOOK, "network processes"),
    Row("whois -h whois.example.org example.org", "whois", LOOK, NET),
    Row("ip -br addr", "ip addr", LOOK, NET),
    Row("ip route show", "ip route", LOOK, NET),
    Row("ip link set eth0 down", "ip link", FULL, "host"),
    Row("ip link s eth0 down", "ip link", FULL, "host"),
    Row("openssl s_client -connect localhost:443 -servername x", "openssl s_client", LOOK, NET),
    Row("openssl x509 -noout -enddate -in c.pem", "openssl x509", LOOK),
    Row("nmap -p 80 localhost", "nmap", FULL, NET),
    Row("psql -h db -U app -c 'SELECT count(*) FROM orders'", "psql", LOOK, NET),
    Row("psql -h db -l", "psql", LOOK, NET),
    Row("psql -h db -c '\\dt'", "psql", LOOK, NET),
    Row("psql -h db -c 'DELETE FROM orders'", "psql", FULL, NET),
    Row("psql -h db -c 'SELECT pg_terminate_backend(1)'", "psql", FULL, NET),
    Row("psql -h db -c 'DROP TABLE orders'", "psql", NEVER, NET),
    Row("mysql -h db -e 'SHOW PROCESSLIST'", "mysql", LOOK, NET),
    Row("mysqladmin -h db status", "mysqladmin", LOOK, NET),
    Row("sqlite3 -readonly app.db 'SELECT 1'", "sqlite3", LOOK),
    Row("sqlite3 app.db .tables", "sqlite3", LOOK),
    Row("sqlite3 app.db 'UPDATE a SET b=1'", "sqlite3", SAFE, "", ("app.db",)),
    Row("redis-cli -h cache info memory", "redis-cli", LOOK, NET),
    Row("redis-cli CONFIG GET maxmemory", "redis-cli", LOOK, NET),
    Row("redis-cli CONFIG SET dir /root", "redis-cli", FULL, NET),
    Row("redis-cli flushall", "redis-cli", NEVER, NET),
    Row("etcdctl get /a --prefix", "etcdctl", LOOK, NET),
]


@each_row("row", ROWS, ids=lambda row: row.command)
def test_a_question_has_its_level(row):
    assert_is(row)


@each_row(
    "command",
    [
        "dig $computed",
        "dig -f /etc/passwd",
        "dig -4f /etc/passwd",
        "getent -s ../evil passwd",
        "whois -h 127.0.0.1 -p 6379 FLUSHALL",
        "whois -h 127.0.0.1:6379 FLUSHALL",
        "host $computed",
        "nslookup",
        "nc localhost 80",
        "nc -zv -e sh localhost 80",
        "nc -l 80",
        "ss -K dst 1.2.3.4",
        "ss -D /etc/x",
        "ip netns exec x evil",
        "ip netns e x evil",
        "ip vrf exec x evil",
        "ip -b evil",
        "openssl enc -in /etc/shadow",
        "openssl s_client -connect x:443 -keylogfile /etc/x",
        "openssl req -engine evil",
        "nmap --script evil localhost",
        "psql -h db",
        "psql -f evil.sql",
        "psql -h db -c '\\! evil'",
        "psql -h db -c 'SELECT 1 \\g | evil'",
        "psql -h db -c 'SELECT 1; DROP TABLE a'",
        "psql -h db -c $computed",
        "psql 'host=db options=evil' -c 'SELECT 1'",
        "mysql -h db -e 'SELECT 1\nsystem evil'",
        "mysql -h db -e '\\! evil'",
        "mysql --pager=evil -e 'SELECT 1'",
        "mysqladmin shutdown",
        "sqlite3 app.db '.shell evil'",
        "sqlite3 app.db \"SELECT load_extension('x')\"",
        "sqlite3 app.db \"ATTACH '/etc/x' AS y\"",
        "sqlite3 app.db",
        "sqlite3 -cmd '.shell evil' app.db 'SELECT 1'",
        "redis-cli",
        "redis-cli -x set a",
        "redis-cli --eval evil.lua",
        "redis-cli --rdb /etc/x",
        "mongosh",
    ],
)
def test_what_could_do_more_is_not_understood(command):
    assert understood(command) is None


@each_row(
    ("statement", "effect"),
    [
        ("select a, count(*) from t where b = 'x;y' group by a;", SqlEffect.READS),
        ("EXPLAIN SELECT * FROM t", SqlEffect.READS),
        ("explain analyze delete from t", SqlEffect.CHANGES),
        ("SELECT * INTO copy FROM t", SqlEffect.CHANGES),
        ("SELECT lo_export(1, 'x')", SqlEffect.CHANGES),
        ('SELECT "pg_reload_conf" ()', SqlEffect.CHANGES),
        ("WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d", SqlEffect.CHANGES),
        ("SELECT pg_reload_conf/**/()", SqlEffect.UNKNOWN),
        ("SELECT 'it''s'; DELETE FROM t", SqlEffect.UNKNOWN),
        ("SELECT 'open", SqlEffect.UNKNOWN),
        ("COPY t TO PROGRAM 'evil'", SqlEffect.DESTROYS),
        ("TRUNCATE t", SqlEffect.DESTROYS),
    ],
)
def test_a_statement_is_judged_by_its_words(statement, effect):
    assert effect_of(statement) is effect
