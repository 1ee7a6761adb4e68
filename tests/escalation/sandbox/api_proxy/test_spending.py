from __future__ import annotations

import logging
import threading

from escalation.agent.stream import Tokens
from escalation.sandbox.api_proxy import Ledger, Spending, Usage, read_ledger


def usage(output: int = 1, *, model: str = "haiku", complete: bool = True) -> Usage:
    return Usage(model=model, tokens=Tokens(input=10, output=output), complete=complete)


def test_nothing_was_spent_where_there_is_no_ledger(tmp_path):
    assert read_ledger(tmp_path / "none") == Spending()


def test_a_ledger_is_there_before_the_first_answer(tmp_path):
    Ledger(tmp_path / "ledger")

    assert (tmp_path / "ledger").read_bytes() == b""


def test_the_last_line_of_an_answer_counts(tmp_path):
    ledger = Ledger(tmp_path / "ledger")

    ledger.note("a", usage(1, complete=False))
    ledger.note("a", usage(50))
    ledger.note("b", usage(7, model="opus", complete=False))

    assert ledger.spending.by_model == {"haiku": Tokens(10, 50), "opus": Tokens(10, 7)}
    assert (ledger.spending.answers, ledger.spending.cut_off) == (2, 1)
    assert read_ledger(tmp_path / "ledger") == ledger.spending


def test_only_its_owner_may_read_it(tmp_path):
    Ledger(tmp_path / "ledger").note("a", usage())

    assert (tmp_path / "ledger").stat().st_mode & 0o777 == 0o600


def test_incomplete_and_unknown_lines_are_ignored(tmp_path):
    path = tmp_path / "ledger"
    Ledger(path).note("a", usage(5))
    with path.open("ab") as file:
        file.write(b'[]\n\xff\xfe\n{"answer": 1}\n{"answer": "x", "model": "m", "complete": 3}\n')
        file.write(b'{"answer": "c", "model": "haiku", "complete": true, "output": "many"}\n')
        file.write(b'{"answer": "d", "model": "hai')

    assert read_ledger(path).tokens == Tokens(10, 5)


def test_a_line_after_a_torn_one_is_not_lost_with_it(tmp_path):
    path = tmp_path / "ledger"
    path.write_bytes(b'{"answer": "d", "model": "hai')

    Ledger(path).note("a", usage(5))

    assert read_ledger(path).tokens == Tokens(10, 5)


def test_a_ledger_goes_on_where_it_ended(tmp_path):
    Ledger(tmp_path / "ledger").note("a", usage(5))
    again = Ledger(tmp_path / "ledger")

    again.note("b", usage(6))

    assert again.spending.tokens == Tokens(20, 11)
    assert read_ledger(tmp_path / "ledger") == again.spending


def test_a_ledger_that_cannot_be_written_does_not_stop_the_count(tmp_path, caplog):
    ledger = Ledger(tmp_path / "no such directory" / "ledger")

    with caplog.at_level(logging.WARNING):
        ledger.note("a", usage(5))

    assert ledger.spending.tokens == Tokens(10, 5)
    assert "Could not write" in caplog.text


def test_threads_lose_no_line_of_each_other(tmp_path):
    ledger = Ledger(tmp_path / "ledger")

    def note_many(thread: int) -> None:
        for number in range(50):
            ledger.note(f"{thread}-{number}", usage(1))

    threads = [threading.Thread(target=note_many, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert ledger.spending.answers == 400
    assert read_ledger(tmp_path / "ledger") == ledger.spending
