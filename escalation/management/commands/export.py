"""Writes what is configured as a file that `claudeops apply` reads."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from escalation.configuration import state
from escalation.errors import RefusalCode
from escalation.management.arguments import watch_named
from escalation.management.output import Refused, TerminalCommand


class Command(TerminalCommand):
    help = (
        "Write watches, probes, remedies, sources and channels as TOML, to a file or to the "
        "terminal. Secrets are never written: a reference stands for each."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", nargs="?", help="the file to write; left out: print it")
        parser.add_argument("--watch", metavar="NAME", help="only this watch")
        parser.add_argument("--force", action="store_true", help="replace a file that exists")

    def handle(self, *args: Any, **options: Any) -> None:
        watch = watch_named(options["watch"]).name if options["watch"] else None
        export = state.export(watch)
        if options["path"] is None:
            # Redacted already, text by text: the name of a key would hide a reference.
            self.stdout.write_secret(export.text)
        else:
            path = Path(options["path"]).expanduser()
            self._write(path, export.text, replace=options["force"])
            self.stdout.write(f"{path} was written. Try it: claudeops apply {path} --plan")
        if export.references:
            self.stderr.write("Secrets are not written. Set these variables where you apply it:")
            for variable, meaning in export.references.items():
                self.stderr.write(f"  {variable}: {meaning}")
        for value in export.hidden:
            self.stderr.write(f"The {value} holds a secret, which was redacted: correct it.")

    def _write(self, path: Path, text: str, *, replace: bool) -> None:
        try:
            with path.open("w" if replace else "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError as error:
            raise Refused(
                RefusalCode.FILE, f"{path} exists already. Replace it with --force."
            ) from error
        except OSError as error:
            raise Refused(
                RefusalCode.FILE, f"{path} cannot be written: {error.strerror}."
            ) from error
