"""The evidence of chaos runs is independent of the checked code."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.devtools import chaos
from tests.devtools.chaos.api_log import exchanges
from tests.devtools.chaos.raw_transcripts import own_words, stated_total, transcripts, usages
from tests.tables import each_row

PACKAGE = "tests.devtools.chaos"
EVIDENCE_MODULES = (
    *("api_log", "raw_transcripts", "leftovers", "evidence", "invariants", "costs", "record"),
)
DRIVER = "psycopg"
"""PostgreSQL's own client, by which the record is read without the models."""


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@each_row("name", EVIDENCE_MODULES)
def test_evidence_modules_import_nothing_that_they_check(name):
    imported = set(imports_of(Path(chaos.__file__).parent / f"{name}.py"))

    allowed = {f"{PACKAGE}.{module}" for module in EVIDENCE_MODULES}
    assert {
        module
        for module in imported - allowed
        if module.split(".")[0] not in {*sys.stdlib_module_names, DRIVER}
    } == set()


def asked(run: str = "1", conversation: str = "a") -> dict[str, object]:
    return {
        "tier": 1,
        "run": run,
        "offered": {"input_tokens": 7},
        "body": {
            "model": "haiku",
            "messages": [{"role": "user", "content": "look"}],
            "metadata": {"user_id": json.dumps({"session_id": conversation})},
        },
    }


def served(run: str = "1") -> dict[str, object]:
    return {"tier": 1, "run": run, "served": {"input_tokens": 7}}


def test_an_answer_belongs_to_the_request_of_its_run(tmp_path):
    log = tmp_path / "requests.jsonl"
    entries = [asked("1"), asked("2"), served("1")]
    log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    assert [(one.run, one.served) for one in exchanges(log)] == [("1", True), ("2", False)]


def test_an_incomplete_line_of_the_log_loses_only_itself(tmp_path):
    log = tmp_path / "requests.jsonl"
    log.write_text(json.dumps(asked("1"))[:60] + json.dumps(asked("2")) + "\n")

    assert [one.run for one in exchanges(log)] == ["2"]


def test_a_drill_without_requests_has_no_exchange(tmp_path):
    assert exchanges(tmp_path / "requests.jsonl") == []


def answer(number: int, tool: str = "", output_tokens: int = 3) -> dict[str, object]:
    return {
        "type": "assistant",
        "uuid": f"answer-{number}",
        "message": {
            "id": f"msg-{number}",
            "model": "haiku",
            "usage": {"output_tokens": output_tokens},
            "content": [{"type": "tool_use", "id": tool}] if tool else [],
        },
    }


def result(tool: str) -> dict[str, object]:
    return {
        "type": "user",
        "uuid": f"result-{tool}",
        "message": {"content": [{"type": "tool_result", "tool_use_id": tool}]},
    }


def test_copies_and_synthetic_entries_do_not_belong_to_a_session():
    prompt = {"type": "user", "uuid": "prompt", "message": {"content": "look"}}
    synthetic = {"type": "assistant", "uuid": "s", "message": {"model": "<synthetic>"}}
    copied, put_in = answer(1, "t1"), result("t1")
    own = [answer(2, "t2"), result("t2")]

    words = own_words([copied, put_in, synthetic, prompt, *own], before={"answer-1"})

    assert words == own


def test_the_parts_of_one_answer_are_counted_once():
    pieces = [answer(1, "t1"), {**answer(1, "t2"), "uuid": "second piece"}]

    (usage,) = usages(pieces)
    assert usage["output_tokens"] == 3


def test_transcripts_are_found_in_any_subdirectory(tmp_path):
    deep = tmp_path / "projects" / "-somewhere"
    deep.mkdir(parents=True)
    total = {"type": "cost-state", "totalCostUSD": 0.25}
    (deep / "abc.jsonl").write_text(json.dumps(total) + '\n{"half": \n[1]\n')

    found = transcripts(tmp_path)

    assert found == {"abc": [total]}
    assert stated_total(found["abc"]) == 0.25
    assert stated_total([]) is None
