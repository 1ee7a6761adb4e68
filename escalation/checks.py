"""System checks of the configuration, each with a hint."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError

from escalation.agent.binary import locate_binary
from escalation.errors import CliMissing
from escalation.run.prompts import prompt_files, prompt_path
from escalation.tiers import Tier
from escalation.worker.health import INSTEAD_OF_ROOT, RUNS_AS_ROOT, runs_as_root
from sessions_app.archive.encryption_key import check_keys
from sessions_app.models.watch import objection_here

TOOL_RULE = re.compile(r"^[A-Za-z_][\w-]*(\(.+\))?$")


@register("claudeops")
def check_queue_times(**_options: Any) -> list[CheckMessage]:
    """Check tier limit < queue timeout < queue retry; otherwise a tier could start twice."""
    longest, timeout = settings.LONGEST_TIER_SECONDS, settings.CLAUDEOPS_QUEUE_TIMEOUT
    found: list[CheckMessage] = []
    if timeout <= longest:
        found.append(
            Error(
                f"CLAUDEOPS_QUEUE_TIMEOUT is {timeout} s, but a tier may run for {longest} s.",
                hint=f"Raise CLAUDEOPS_QUEUE_TIMEOUT above {longest}, or lower the tier's TIMEOUT.",
                id="escalation.E001",
            )
        )
    if timeout >= settings.CLAUDEOPS_QUEUE_RETRY:
        found.append(
            Error(
                f"CLAUDEOPS_QUEUE_RETRY is {settings.CLAUDEOPS_QUEUE_RETRY} s, but must be longer "
                f"than CLAUDEOPS_QUEUE_TIMEOUT ({timeout} s).",
                hint=f"Raise CLAUDEOPS_QUEUE_RETRY above {timeout}.",
                id="escalation.E002",
            )
        )
    return found


@register("claudeops")
def check_cli(**_options: Any) -> list[CheckMessage]:
    try:
        locate_binary()
    except CliMissing as error:
        return [Error(str(error), id="escalation.E003")]
    return []


@register("claudeops")
def check_prompts(**_options: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for name in prompt_files():
        path = prompt_path(name)
        if not path.is_file():
            found.append(
                Error(
                    f"The prompt file {path} is missing.",
                    hint="Restore it, or correct CLAUDEOPS_PROMPTS_DIR.",
                    id="escalation.E004",
                )
            )
        elif path.stem != name:
            found.append(
                Warning(
                    f"The prompt file {path} has the name of an earlier version.",
                    hint=f"Rename it to {name}.md.",
                    id="escalation.W004",
                )
            )
    return found


@register("claudeops")
def check_tool_lists(**_options: Any) -> list[CheckMessage]:
    return [
        Error(
            f"{variable} has {entry!r}, which is no tool rule.",
            hint="Write tools and rules separated by commas: Read,Bash(git log:*)",
            id="escalation.E005",
        )
        for variable, entries in _tool_lists()
        for entry in entries
        if not TOOL_RULE.match(entry)
    ]


@register("claudeops")
def check_workdir(**_options: Any) -> list[CheckMessage]:
    workdir = settings.CLAUDEOPS_WORKDIR
    objection = workdir and (objection_here(workdir) or _missing(workdir))
    if not objection:
        return []
    return [
        Error(
            f"CLAUDEOPS_WORKDIR: {objection}",
            hint="Name the directory of a system, or leave it out and add watches yourself.",
            id="escalation.E006",
        )
    ]


def _missing(workdir: str) -> str:
    return "" if Path(workdir).is_dir() else f"There is no directory {workdir}."


@register(Tags.security, deploy=True)
def check_user(**_options: Any) -> list[CheckMessage]:
    """Warn about root with `check --deploy`; worker and dashboard always warn."""
    if not runs_as_root():
        return []
    return [Warning(RUNS_AS_ROOT, hint=INSTEAD_OF_ROOT, id="escalation.W001")]


@register(Tags.database)
def check_encryption_key(
    databases: Sequence[str] | None = None, **_options: Any
) -> list[CheckMessage]:
    """Check the key with `check --database default` and before each migration."""
    try:
        opens, said = (True, "") if not databases else check_keys()
    except DatabaseError:  # no tables yet
        return []
    if opens:
        return []
    return [
        Error(
            f"The encryption key does not fit all stored data: {said}",
            id="escalation.E007",
        )
    ]


def _tool_lists() -> Iterator[tuple[str, tuple[str, ...]]]:
    tiers: dict[int, Tier] = settings.CLAUDEOPS_TIERS
    for tier in tiers.values():
        yield f"CLAUDEOPS_TIER{tier.number}_ALLOWED_TOOLS", tier.allowed_tools
        yield f"CLAUDEOPS_TIER{tier.number}_DISALLOWED_TOOLS", tier.disallowed_tools
    yield "CLAUDEOPS_FOLLOW_UP_TOOLS", settings.CLAUDEOPS_FOLLOW_UP_TOOLS
