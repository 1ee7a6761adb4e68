"""Prove the sandbox: harmless commands must work, hostile ones and attacks must fail."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from argparse import ArgumentParser
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from django.db import DatabaseError

from escalation.agent.binary import find_binary
from escalation.drills.scratch import is_scratch
from escalation.errors import CannotRun, RefusalCode, WhyNot
from escalation.management.output import ExitCode, Refused, TerminalCommand, waiting
from escalation.sandbox.proof import corpus as corpora
from escalation.sandbox.proof.corpus import dry_outcome, table
from escalation.sandbox.proof.differential import report
from escalation.sandbox.proof.play import (
    ATTACKED_TIERS,
    Machine,
    as_result,
    of_outcomes,
    play_attacks,
    play_corpus,
    play_differential,
    play_in_scratch,
    write_result,
)
from escalation.sandbox.proof.proof import accepted_failures, require_sandbox, store
from escalation.sandbox.setup import sandbox_or_refusal
from escalation.worker.installation import carry_out, upgrade_ahead
from sessions_app.models import SandboxProof
from sessions_app.tiers import tier_numbers

STANDARD_INPUT = "-"
DIFFERENTIAL_TEXTS = 100_000
NOT_STORED = {"proof": None, "is_worse": False, "not_stored": "only a complete run is a proof"}


class Command(TerminalCommand):
    help = (
        "Prove the sandbox: play commands or attacks through the real CLI in the sandbox of each "
        "tier, in a scratch installation, and report decisions and effects. Costs nothing. A "
        "complete run is stored as a proof. Exit codes: 0 nothing failed, 1 something failed, 2 "
        "it could not run."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        prove = verbs.add_parser("prove", help="play the corpus, or attacks, and check the effects")
        prove.add_argument("--tier", type=int, choices=tier_numbers())
        prove.add_argument(
            "--corpus", help='a file of JSON lines {"tier", "expect", "command"}; - reads stdin'
        )
        what = prove.add_mutually_exclusive_group()
        what.add_argument(
            "--dry", action="store_true", help="only decide on single programs, run nothing"
        )
        what.add_argument("--attacks", action="store_true", help="play attacks, not commands")
        what.add_argument(
            "--differential",
            type=int,
            nargs="?",
            const=DIFFERENTIAL_TEXTS,
            metavar="TEXTS",
            help="compare the vectors that generated texts execute with the command policy",
        )
        prove.add_argument(
            "--seed", type=int, default=0, help="of the generated texts; the same for the same seed"
        )
        prove.add_argument("--changes-nothing", action="store_true", help="play as in a dry run")
        prove.add_argument("--user", default="", help="as root, play as this user")
        prove.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["attacks"] and options["corpus"]:
            raise Refused(RefusalCode.INVALID_ARGUMENTS, "Give --attacks or --corpus, not both.")
        if options["differential"] and (options["corpus"] or options["tier"]):
            raise Refused(
                RefusalCode.INVALID_ARGUMENTS,
                "--differential makes its own texts, for every tier: give no --corpus and --tier.",
            )
        if options["attacks"] and options["tier"] not in (None, *ATTACKED_TIERS):
            raise Refused(
                RefusalCode.INVALID_ARGUMENTS,
                f"Tier {options['tier']} has no attacks: it may change the host.",
            )
        # Exit normally, so that everything started is stopped.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(ExitCode.REFUSED))
        try:
            if is_scratch():
                return self._play_here(options)
            with self._waiting(options):
                found = self._dry(options) if options["dry"] else self._play_in_scratch(options)
        except CannotRun as error:
            raise Refused(error.why_not, error) from error
        if options["json"]:
            self.stdout.write_json(found)
        else:
            self._print(found)
        if found["failed"] or found["wrong"]:
            sys.exit(ExitCode.PERSON)

    def _waiting(self, options: dict[str, Any]) -> AbstractContextManager[object]:
        """Show progress, unless the trial itself prints it."""
        if not options["dry"] and _prints_progress(options):
            return nullcontext()
        return waiting(self.stderr, "Proving the sandbox")

    def _dry(self, options: dict[str, Any]) -> dict[str, Any]:
        began = time.monotonic()
        corpus = _corpus(options)
        rows = [dry_outcome(row).as_data() for row in corpus.rows]
        return {
            "dry": True,
            "why_no_sandbox": sandbox_or_refusal().why,
            "rows": rows,
            "tried": len(rows),
            "failed": sum(not row["ok"] for row in rows),
            "seconds": round(time.monotonic() - began, 2),
            **_about(corpus),
        }

    def _play_in_scratch(self, options: dict[str, Any]) -> dict[str, Any]:
        find_binary()
        require_sandbox()
        is_whole = not any(
            options[name] for name in ("tier", "corpus", "differential", "changes_nothing", "user")
        )
        kind = SandboxProof.Kind.ATTACKS if options["attacks"] else SandboxProof.Kind.CORPUS
        if is_whole:
            self._prepare_database(kind)
        plays_corpus = not options["attacks"] and not options["differential"]
        corpus = _corpus(options) if plays_corpus else None
        arguments = ["--attacks"] if options["attacks"] else []
        if options["differential"]:
            arguments += ["--differential", str(options["differential"])]
            arguments += ["--seed", str(options["seed"])]
        if options["changes_nothing"]:
            arguments.append("--changes-nothing")
        if options["tier"]:
            arguments += ["--tier", str(options["tier"])]
        if options["corpus"]:
            arguments += ["--corpus", STANDARD_INPUT]
        found = play_in_scratch(
            arguments,
            corpus_text=corpus.text if corpus and options["corpus"] else "",
            progress=_prints_progress(options),
            user=options["user"],
        )
        found |= _about(corpus) if corpus else {"wrong": [], "left_out": []}
        return {**found, **(_stored(kind, found) if is_whole else NOT_STORED)}

    def _prepare_database(self, kind: str) -> None:
        """Create a missing database, or refuse, before a trial that takes minutes."""
        if upgrade_ahead().is_new:
            carry_out()
        try:
            accepted_failures(kind)
        except DatabaseError as error:
            raise CannotRun(
                f"The proof could not be stored: {error}. Run `claudeops upgrade`.", WhyNot.SANDBOX
            ) from error

    def _play_here(self, options: dict[str, Any]) -> None:
        """Play in the scratch installation, and write the result for the parent process."""
        began = time.monotonic()
        try:
            found = self._found_here(options)
        except CannotRun as error:
            return write_result({"problem": str(error)})
        return write_result(as_result(Machine.this(), found, began))

    def _found_here(self, options: dict[str, Any]) -> dict[str, Any]:
        if options["differential"]:
            return play_differential(options["differential"], options["seed"], self._progress)
        changes_nothing = options["changes_nothing"]
        if options["attacks"]:
            tiers = [options["tier"]] if options["tier"] else ATTACKED_TIERS
            attacks = play_attacks(tiers, self._progress, changes_nothing=changes_nothing)
            return of_outcomes(attacks)
        rows = _corpus(options).rows
        return of_outcomes(play_corpus(rows, self._progress, changes_nothing=changes_nothing))

    def _progress(self, line: str) -> None:
        self.stderr.write(line)
        self.stderr.flush()

    def _print(self, found: dict[str, Any]) -> None:
        for line in report(found) if "asked" in found else table(found["rows"]):
            self.stdout.write(line)
        for what in found["left_out"]:
            self.stdout.write(f"skipped: {what}")
        for what in found["wrong"]:
            self.stdout.write(f"invalid: {what}")
        if found.get("dry"):
            if found["why_no_sandbox"]:
                self.stdout.write(
                    f"No sandbox: {found['why_no_sandbox']}. Only single programs run."
                )
            return
        self.stdout.write(
            f"{found['seconds']:.0f} s; CLI {found['cli_version']}; {found['sandbox']}; "
            f"{found['kernel']}"
        )
        if found["proof"] is None:
            self.stdout.write(f"Not stored: {found['not_stored']}.")
        elif found["is_worse"]:
            self.stdout.write("It got worse: tiers above Tier 1 wait until an approver accepts it.")


def _prints_progress(options: dict[str, Any]) -> bool:
    return sys.stderr.isatty() and not options["json"]


def _stored(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    """Store the proof; if the database fails, the result is still printed."""
    try:
        proof = store(kind, found)
    except DatabaseError as error:
        return {**NOT_STORED, "not_stored": f"the database failed ({error})"}
    return {"proof": proof.pk, "is_worse": proof.is_worse, "not_stored": ""}


def _corpus(options: dict[str, Any]) -> corpora.Corpus:
    named = options["corpus"]
    # A dry run needs no programs.
    find = str if options["dry"] else shutil.which
    try:
        if named == STANDARD_INPUT:
            corpus = corpora.parse(sys.stdin.read(), find=find)
        else:
            corpus = corpora.read(Path(named) if named else corpora.SHIPPED, find=find)
    except OSError as error:
        raise CannotRun(f"The corpus cannot be read: {error}.", WhyNot.SANDBOX) from error
    return corpus.of_tier(options["tier"]) if options["tier"] else corpus


def _about(corpus: corpora.Corpus) -> dict[str, Any]:
    return {"wrong": list(corpus.wrong), "left_out": list(corpus.left_out)}
