"""Reads the transcripts that the CLI writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.devtools.chaos.api_log import KINDS, Usage

Entry = dict[str, Any]


def transcripts(directory: Path) -> dict[str, list[Entry]]:
    """Return all transcripts below a configuration directory, by conversation id."""
    found: dict[str, list[Entry]] = {}
    for folder, _folders, names in os.walk(directory):
        for name in sorted(names):
            if name.endswith(".jsonl"):
                found[name.removesuffix(".jsonl")] = _entries(Path(folder, name))
    return found


def own_words(entries: list[Entry], before: set[str]) -> list[Entry]:
    """What was said in one run: the model's answers, and the outputs of the tools they called.

    A forked conversation begins with copies, which keep the ids under which the earlier files have
    them. What answers a call of an earlier run was put in by the CLI and is nobody's word.
    """
    new = [entry for entry in entries if _id(entry) and _id(entry) not in before]
    answers = [entry for entry in new if _is_answer(entry)]
    called = {number for entry in answers for number in tool_numbers(entry, "id")}
    return [
        entry for entry in new if _is_answer(entry) or called & tool_numbers(entry, "tool_use_id")
    ]


def ids(entries: list[Entry]) -> set[str]:
    return {_id(entry) for entry in entries} - {""}


def tool_numbers(entry: Entry, key: str) -> set[str]:
    content = (entry.get("message") or {}).get("content")
    blocks = content if isinstance(content, list) else []
    return {str(block[key]) for block in blocks if isinstance(block, dict) and block.get(key)}


def usages(words: list[Entry]) -> list[Usage]:
    """Return one usage for each answer, which has several entries."""
    by_answer: dict[str, Usage] = {}
    for entry in words:
        message = entry.get("message") or {}
        if isinstance(message.get("usage"), dict):
            by_answer[str(message.get("id"))] = {
                kind: int(message["usage"].get(kind) or 0) for kind in KINDS
            }
    return list(by_answer.values())


def stated_total(entries: list[Entry]) -> float | None:
    """Return the cost of the conversation that the CLI stored, if any."""
    totals = [
        entry["totalCostUSD"]
        for entry in entries
        if entry.get("type") == "cost-state" and "totalCostUSD" in entry
    ]
    return float(totals[-1]) if totals else None


def _id(entry: Entry) -> str:
    return str(entry.get("uuid") or "")


def _is_answer(entry: Entry) -> bool:
    model = (entry.get("message") or {}).get("model")
    return entry.get("type") == "assistant" and model != "<synthetic>"


def _entries(path: Path) -> list[Entry]:
    found = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # half a line, where a death or a full disk cut it
        if isinstance(entry, dict):
            found.append(entry)
    return found
