"""The CLAUDE-OPS.md of a watch as a run would read it now, or a draft to begin one with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from escalation.run.situation import MANIFEST_LENGTH, MANIFEST_NAME, read_manifest
from sessions_app.models import Watch
from sessions_app.reading.masking import masked

DRAFT = """# {name}

What this is: one or two sentences for somebody who has never seen it.

## Services
{services}

## Where things are
- Inventory: compose file, hosts, repositories
- Logs:
- Dashboards:

## What healthy means
- Which addresses must answer, and how fast
- Which jobs run when (backups, certificates)

## Rules of the house
- What may be restarted without asking
- What must never be touched
- Who to ask, and when
"""
NO_SERVICES = "- name: what it does, how to see that it is well, how it is restarted"


@dataclass(frozen=True, kw_only=True, slots=True)
class HouseRules:
    text: str = ""
    """Masked; empty where there is nothing to show."""
    is_cut: bool = False
    problem: str = ""
    """Why it is not shown, where it is there."""
    draft: str = ""


def house_rules(watch: Watch, services: Sequence[str] = ()) -> HouseRules:
    """Read now, on the machine that serves this page. Nothing is ever written."""
    workdir = Path(watch.workdir)
    if problem := _problem(workdir):
        return HouseRules(problem=problem)
    text = read_manifest(workdir)
    if not text.strip():
        return HouseRules(draft=draft_for(watch.name, services))
    return HouseRules(text=masked(text), is_cut=len(text) > MANIFEST_LENGTH)


def draft_for(name: str, services: Sequence[str]) -> str:
    known = "\n".join(
        f"- {service}: what it does, how to see that it is well" for service in services
    )
    return DRAFT.format(name=name, services=known or NO_SERVICES)


def _problem(workdir: Path) -> str:
    """A link may lead to a file that nobody meant to show, and a pipe would never be read out."""
    if not workdir.is_dir():
        return f"The directory {workdir} cannot be read on this machine."
    manifest = workdir / MANIFEST_NAME
    try:
        if not manifest.resolve().is_relative_to(workdir.resolve()):
            return f"{MANIFEST_NAME} is a link that leads out of the directory: it is not shown."
        if manifest.exists() and not manifest.is_file():
            return f"{MANIFEST_NAME} is no ordinary file: it is not read."
    except (OSError, RuntimeError) as error:
        return f"{MANIFEST_NAME} cannot be read: {error}."
    return ""
