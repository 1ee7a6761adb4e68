"""Searches names, incidents and the full text of sessions."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.management.output import TerminalCommand
from escalation.web.search import Hit, SearchResult, find
from sessions_app.access.roles import Right
from sessions_app.text import one_line

LONGEST_LINE = 300


class Command(TerminalCommand):
    help = (
        "Search watches, services, probes, remedies, settings, pages, incidents, cycles and "
        "sessions, and the full text of reports, answers, commands and output."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("words", nargs="+", help="what is looked for, as it stands there")
        parser.add_argument("--drills", action="store_true", help="only among drills")
        parser.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        # A terminal has no roles: docs/access.md.
        result = find(" ".join(options["words"]), frozenset(Right), drills=options["drills"])
        if options["json"]:
            self.stdout.write_json(result_as_data(result), indent=2)
        else:
            self._print(result)

    def _print(self, result: SearchResult) -> None:
        self.stdout.write(f"{result.sentence.rstrip('?')}.")
        for group in result.groups:
            self.stdout.write("")
            self.stdout.write(self.style.MIGRATE_HEADING(group.title))
            for hit in group.hits:
                self._print_hit(hit)
            if group.more:
                self.stdout.write("  and more")
        if result.remark:
            self.stderr.write(result.remark, str)

    def _print_hit(self, hit: Hit) -> None:
        mark = " (drill)" if hit.drill else ""
        self.stdout.write(f"  {one_line(hit.title, LONGEST_LINE)}{mark}")
        if hit.found is None:
            return
        found = (hit.found.before, self.style.SUCCESS(hit.found.match), hit.found.after)
        self.stdout.write(f"    {hit.found.where}: {''.join(found)}")


def result_as_data(result: SearchResult) -> dict[str, Any]:
    return {
        "words": result.words,
        "drills": result.drills,
        "remark": result.remark or None,
        "groups": [
            {
                "title": group.title,
                "hits": [hit.as_data() for hit in group.hits],
                "has_more": bool(group.more),
            }
            for group in result.groups
        ],
    }
