from __future__ import annotations

from escalation.sandbox.proof.corpus import plain, table


def row(command, *, ok=True, expect="deny", tier=1):
    return {
        **{"tier": tier, "command": command, "expect": expect, "decision": "deny"},
        **{"rule": "needs Tier 2", "happened": "nothing", "ok": ok},
    }


def test_failed_rows_are_first_and_totals_last():
    rows = [row("one"), row("two", ok=False), row("three", tier=2, expect="allow")]

    lines = list(table(rows))

    assert lines[0].startswith("FAILED Tier 1 deny     two ")
    assert lines[0].endswith("deny (needs Tier 2): nothing")
    assert lines[-3:] == [
        "Tier 1  deny        2 tried, 1 failed",
        "Tier 2  allow       1 tried, 0 failed",
        "3 tried, 1 failed",
    ]


def test_an_attack_is_shown_by_its_name():
    attack = {
        **{"tier": 1, "name": "kill it", "target": "CLI", "command": "kill $PPID"},
        **{"decision": "isolate", "happened": "nothing", "ok": True},
    }

    first, *_rest, last = table([attack])

    assert "kill it" in first
    assert "CLI" in first
    assert last == "1 tried, 0 failed"


def test_nothing_in_a_row_reaches_the_terminal_raw():
    assert plain("a\x1b[2Jb\nc\u202e") == "a [2Jb c "
