"""Try the walls: harmless commands must work, hostile ones and attacks must do nothing."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.db import DatabaseError

from escalation.agent import find_binary
from escalation.errors import CannotRun
from escalation.management.exit_codes import ExitCode
from escalation.management.refusal import Refused
from escalation.management.terminal import TerminalCommand
from escalation.rehearsal.scratch import is_scratch
from escalation.rehearsal.walls import corpus as corpora
from escalation.rehearsal.walls.apart import hand_over, play_apart
from escalation.rehearsal.walls.dry import dry_outcome
from escalation.rehearsal.walls.play import (
    ATTACKED_TIERS,
    Machine,
    as_result,
    play_attacks,
    play_corpus,
)
from escalation.rehearsal.walls.proof import failed_so_far, require_rooms, store
from escalation.rehearsal.walls.table import table
from escalation.run.walls import rooms_or_refusal
from escalation.tiers import HIGHEST_TIER, LOWEST_TIER
from sessions_app.models import WallsProof

STANDARD_INPUT = "-"
NOT_STORED = {"proof": None, "is_worse": False, "not_stored": "only a whole trial is a proof"}


class Command(TerminalCommand):
    help = (
        "Play commands, or attacks, through the real CLI behind a tier's walls, in a scratch "
        "installation, and say what was decided and what really happened. Costs nothing. A whole "
        "trial is stored as a proof. Exit code 0: nothing failed; 1: something did; 2: it could "
        "not be tried."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tier", type=int, choices=range(LOWEST_TIER, HIGHEST_TIER + 1))
        parser.add_argument(
            "--corpus", help='a file of JSON lines {"tier", "expect", "command"}; - reads stdin'
        )
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--dry", action="store_true", help="ask the gate alone, run nothing")
        what.add_argument("--attacks", action="store_true", help="attacks in place of commands")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["attacks"] and options["corpus"]:
            raise Refused("The attacks are no corpus: give --attacks or --corpus, not both.")
        if options["attacks"] and options["tier"] == HIGHEST_TIER:
            raise Refused(f"At Tier {HIGHEST_TIER} nothing is attacked: it may change the host.")
        # Told to stop, it must still stop what it started.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(ExitCode.REFUSED))
        try:
            if is_scratch():
                return self._try_here(options)
            found = self._dry(options) if options["dry"] else self._try_apart(options)
        except CannotRun as error:
            raise Refused(error) from error
        if options["json"]:
            self.stdout.write(json.dumps(found))
        else:
            self._print(found)
        if found["failed"] or found["wrong"]:
            sys.exit(ExitCode.PERSON)

    def _dry(self, options: dict[str, Any]) -> dict[str, Any]:
        began = time.monotonic()
        corpus = _corpus(options)
        rows = [dry_outcome(row).as_data() for row in corpus.rows]
        return {
            "dry": True,
            "why_no_rooms": rooms_or_refusal().why,
            "rows": rows,
            "tried": len(rows),
            "failed": sum(not row["ok"] for row in rows),
            "seconds": round(time.monotonic() - began, 2),
            **_about(corpus),
        }

    def _try_apart(self, options: dict[str, Any]) -> dict[str, Any]:
        find_binary()
        require_rooms()
        is_whole = not options["tier"] and not options["corpus"]
        kind = WallsProof.Kind.ATTACKS if options["attacks"] else WallsProof.Kind.CORPUS
        if is_whole:
            _require_database(kind)
        corpus = None if options["attacks"] else _corpus(options)
        arguments = ["--attacks"] if options["attacks"] else []
        if options["tier"]:
            arguments += ["--tier", str(options["tier"])]
        if options["corpus"]:
            arguments += ["--corpus", STANDARD_INPUT]
        found = play_apart(
            arguments,
            corpus_text=corpus.text if corpus and options["corpus"] else "",
            progress=sys.stderr.isatty() and not options["json"],
        )
        found |= _about(corpus) if corpus else {"wrong": [], "left_out": []}
        return {**found, **(_stored(kind, found) if is_whole else NOT_STORED)}

    def _try_here(self, options: dict[str, Any]) -> None:
        """In the scratch installation: the answer goes to the one that started it."""
        began = time.monotonic()
        try:
            if options["attacks"]:
                tiers = [options["tier"]] if options["tier"] else ATTACKED_TIERS
                outcomes: list[Any] = list(play_attacks(tiers, self._progress))
            else:
                outcomes = list(play_corpus(_corpus(options).rows, self._progress))
        except CannotRun as error:
            return hand_over({"problem": str(error)})
        return hand_over(as_result(Machine.this(), outcomes, began))

    def _progress(self, line: str) -> None:
        self.stderr.write(line)
        self.stderr.flush()

    def _print(self, found: dict[str, Any]) -> None:
        for line in table(found["rows"]):
            self.stdout.write(line)
        for what in found["left_out"]:
            self.stdout.write(f"left out: {what}")
        for what in found["wrong"]:
            self.stdout.write(f"not read: {what}")
        if found.get("dry"):
            if found["why_no_rooms"]:
                self.stdout.write(f"No rooms: {found['why_no_rooms']}. What needs one is denied.")
            return
        self.stdout.write(
            f"{found['seconds']:.0f} s; CLI {found['cli_version']}; {found['rooms']}; "
            f"{found['kernel']}"
        )
        if found["proof"] is None:
            self.stdout.write(f"Not stored: {found['not_stored']}.")
        elif found["is_worse"]:
            self.stdout.write("It got worse: Tier 2 and 3 wait until an operator accepts it.")


def _require_database(kind: str) -> None:
    """Before the minutes that a trial takes, not after."""
    try:
        failed_so_far(kind)
    except DatabaseError as error:
        raise CannotRun(
            f"The proof could not be stored: {error}. Run `claudeops upgrade`."
        ) from error


def _stored(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    """What was found is printed all the same where the database fails now."""
    try:
        proof = store(kind, found)
    except DatabaseError as error:
        return {**NOT_STORED, "not_stored": f"the database failed ({error})"}
    return {"proof": proof.pk, "is_worse": proof.is_worse, "not_stored": ""}


def _corpus(options: dict[str, Any]) -> corpora.Corpus:
    named = options["corpus"]
    # Where nothing is run, no program can be missing.
    find = str if options["dry"] else shutil.which
    try:
        if named == STANDARD_INPUT:
            corpus = corpora.parse(sys.stdin.read(), find=find)
        else:
            corpus = corpora.read(Path(named) if named else corpora.SHIPPED, find=find)
    except OSError as error:
        raise CannotRun(f"The corpus cannot be read: {error}.") from error
    return corpus.of_tier(options["tier"]) if options["tier"] else corpus


def _about(corpus: corpora.Corpus) -> dict[str, Any]:
    return {"wrong": list(corpus.wrong), "left_out": list(corpus.left_out)}
