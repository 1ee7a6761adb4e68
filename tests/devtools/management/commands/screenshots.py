"""Take the screenshots of the README."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.drills.scratch import is_scratch
from escalation.errors import RefusalCode
from escalation.management.output import Refused, TerminalCommand, waiting
from sessions_app.credentials import API_KEY
from tests.devtools.scratch import rerun_in_scratch
from tests.devtools.screenshots import NoCamera, NoServer, make_pictures, require_camera


class Command(TerminalCommand):
    help = (
        "Make the README's pictures from drills in a scratch installation, with Debian's chromium "
        "and Playwright, a dependency of development. Costs nothing and leaves the record alone."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--out", default=str(settings.BASE_DIR), help="the directory for the pictures (here)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            require_camera()
            if not is_scratch():
                sys.exit(rerun_in_scratch({"CLAUDEOPS_HTTPS": "no", API_KEY: "not-needed"}))
            into = Path(options["out"]).absolute()
            with waiting(self.stderr, "Making pictures") as line:

                def say(words: str) -> None:
                    line.make_room()
                    self.stdout.write(words)

                made = make_pictures(into, say)
            for picture in made:
                size = (into / picture.file).stat().st_size
                self.stdout.write(f"{picture.file}: {size / 1000:.0f} kB")
        except (NoCamera, NoServer) as trouble:
            raise Refused(RefusalCode.NOT_INSTALLED, trouble) from trouble
