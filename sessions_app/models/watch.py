"""Watches: the systems that are looked after, with their schedule, limits and grants."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from math import ceil
from pathlib import Path

from cron_descriptor import ExpressionDescriptor, Options
from croniter import croniter
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.urls import reverse
from django.utils import timezone

from sessions_app.grants import parse_grants
from sessions_app.models.autonomy import (
    AutonomyLevel,
    Policy,
    autonomy_level_of,
    autonomy_title,
    read_configured_tiers,
    read_tiers,
    written_tiers,
)
from sessions_app.models.fields import OutsideTextField
from sessions_app.tiers import tier_choices, validate_tier

MINUTES_OF_DAY = 24 * 60
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}
VALUE = r"(?:\d\d?|[a-z]{3})"
RANGE = rf"{VALUE}-{VALUE}"
VALUES = rf"(?:{VALUE}(?:,{VALUE})*|{RANGE})"
# Only steps that divide the hour or the day: for */7, whose last step is shorter, the library says
# "every 7 minutes" too.
MINUTES = r"(?:\*|\*/(?:[1-6]|10|12|15|20|30))"
HOURS = r"\*(?:/(?:[123468]|12))?"
TIME = rf"(?:\d\d? (?:{HOURS}|{VALUES})|{MINUTES} (?:\*|{RANGE}))"
# Not a day of the month together with a weekday, because cron runs on either of them.
DATE = rf"(?:(?:\*|{VALUES}) (?:\*|{VALUES}) \*|\* (?:\*|{VALUES}) {VALUES})"
DESCRIBED_RIGHT = re.compile(f"{TIME} {DATE}", re.ASCII)
FURTHEST = 4
"""Years to search for a match, because 30 February has none."""


def interval_words(minutes: int) -> str:
    if minutes % MINUTES_OF_DAY == 0:
        return _every(minutes // MINUTES_OF_DAY, "day")
    if minutes % 60 == 0:
        return _every(minutes // 60, "hour")
    return _every(minutes, "minute")


def cron_words(expression: str) -> str:
    """Describe a cron expression, or return `cron …` if the description may be wrong."""
    return _described(expression) or f"cron {expression.strip()}"


def next_times(
    *, cron: str, interval_minutes: int, due: datetime, after: datetime, count: int = 3
) -> tuple[datetime, ...]:
    """Return the next times in the zone of `after`, by cron or by interval from `due`."""
    if cron:
        return _cron_times(cron, after, count)
    step = timedelta(minutes=interval_minutes)
    first = due + max(0, ceil((after - due) / step)) * step
    return tuple((first + number * step).astimezone(after.tzinfo) for number in range(count))


def _cron_times(cron: str, after: datetime, count: int) -> tuple[datetime, ...]:
    try:
        # One second earlier, so that a time that is due now counts.
        times = croniter(cron, after - timedelta(seconds=1), max_years_between_matches=FURTHEST)
        return tuple(times.get_next(datetime) for _number in range(count))
    except (ValueError, KeyError, OverflowError):
        return ()


@lru_cache(maxsize=512)
def _described(expression: str) -> str:
    """Return the library's description, or an empty string if croniter runs differently."""
    fields = NICKNAMES.get(expression.strip().lower(), expression.lower()).split()
    cron = " ".join(fields)
    if not DESCRIBED_RIGHT.fullmatch(cron) or not _means_what_it_names(cron):
        return ""
    # "at 03:00, every day", but "every 15 minutes" without "every hour, every day".
    is_at_fixed_times = not re.search(r"[*-]", " ".join(fields[:2]))
    options = Options(locale_code="en_US", use_24hour_time_format=True, verbose=is_at_fixed_times)
    words: str = ExpressionDescriptor(cron, options).get_description()
    return words[:1].lower() + words[1:]


def _means_what_it_names(cron: str) -> bool:
    """Reject invalid numbers, and ranges like 3-3 and 0-7 that croniter reads as every value."""
    try:
        meant = croniter.expand(cron)[0]
    except (ValueError, KeyError):
        return False
    pairs = zip(cron.split(), meant, strict=True)
    return all(field.startswith("*") or values != ["*"] for field, values in pairs)


def _every(count: int, unit: str) -> str:
    return f"every {unit}" if count == 1 else f"every {count} {unit}s"


MANIFEST_NAME = "CLAUDE-OPS.md"
LIMITS_NAME = "claude-ops.toml"
CONFIGURATION_FILES = (
    *(MANIFEST_NAME, LIMITS_NAME),
    *("CLAUDE.md", "CLAUDE.local.md", ".mcp.json", ".claude"),
)
"""Files in a working directory that instruct an agent. No session may change them."""

_RULE = re.compile(r"Bash\(\s*([^()]*?)\s*\)")
_BETWEEN = re.compile(r"[\s,]*")


def read_ask_rules(words: str) -> tuple[str, ...]:
    """Parse rules for commands that need approval, like `Bash(docker restart:*)`.

    They are separated by spaces or commas. Raise ValueError for anything else.
    """
    rest = _BETWEEN.sub("", _RULE.sub("", words)) if words.strip() else ""
    empty = [rule for rule in _RULE.finditer(words) if not rule[1].strip(":* ")]
    if rest or empty:
        wrong = rest or empty[0][0]
        raise ValueError(f"{wrong!r} is not a rule like Bash(docker restart:*)")
    return tuple(dict.fromkeys(f"Bash({rule[1]})" for rule in _RULE.finditer(words)))


LONGEST_WORDS = 80
"""Limit for all host labels of a watch together, because they are part of a queue's name."""
HOST_LABEL = re.compile(r"[a-z0-9_][a-z0-9._-]*")


def read_host_words(text: str) -> tuple[str, ...]:
    """Parse host labels: lower case, sorted, each once. Raise ValueError for other text."""
    words = sorted({word.lower() for word in re.split(r"[,\s]+", text) if word})
    for word in words:
        if not HOST_LABEL.fullmatch(word):
            raise ValueError(
                f"{word!r} is not a host label: use letters, digits, dots and dashes, like nas-2"
            )
    if len(" ".join(words)) > LONGEST_WORDS:
        raise ValueError(f"the labels have more than {LONGEST_WORDS} characters together")
    return tuple(words)


def may_run(words: Iterable[str], labels: Iterable[str]) -> bool:
    """Return True if a host with these labels may run a watch with these `hosts`."""
    wanted = set(words)
    return not wanted or not wanted.isdisjoint(labels)


def objection_to_workdir(
    directory: str | Path, *, roots: Iterable[Path], ours: Mapping[str, Path]
) -> str:
    """Return why a watch must not use a directory, or an empty string. Follow links first.

    A working directory must be inside CLAUDEOPS_ROOTS, and must neither contain nor be part of
    the files of Claude Ops: an agent could read the keys there or change its own supervisor.
    """
    given = Path(directory)
    if not given.is_absolute():
        return f"The directory {str(directory)!r} must be absolute, like /srv/shop."
    try:
        real = given.resolve()
        allowed = [root.resolve() for root in roots]
        kept = {name: path.resolve() for name, path in ours.items()}
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL
        return f"The directory {str(directory)!r} cannot be used: {error}."
    shown = str(given) if real == given else f"{given} (which is {real})"
    if real == Path("/"):
        return f"{shown} is the whole file system: choose the directory of one system."
    for name, path in kept.items():
        if real.is_relative_to(path):
            return f"{shown} is inside {name} ({path}): choose a directory outside of it."
        if path.is_relative_to(real):
            return f"{shown} contains {name} ({path}): choose a directory beside it."
    if not any(real.is_relative_to(root) for root in allowed):
        listed = ", ".join(map(str, allowed))
        return f"{shown} is outside the roots that CLAUDEOPS_ROOTS allows ({listed})."
    return ""


def objection_here(directory: str | Path) -> str:
    """Return why a watch must not use a directory of this installation."""
    return objection_to_workdir(directory, roots=settings.CLAUDEOPS_ROOTS, ours=our_places())


def our_places() -> dict[str, Path]:
    """Return the paths of Claude Ops that a working directory must not overlap, by name."""
    places = {
        "the state directory of Claude Ops": Path(settings.CLAUDEOPS_STATE_DIR),
        "the code of Claude Ops": Path(settings.BASE_DIR),
        "the prompts of Claude Ops": Path(settings.CLAUDEOPS_PROMPTS_DIR),
    }
    if sys.prefix != sys.base_prefix:
        places["the Python environment of Claude Ops"] = Path(sys.prefix)
    if settings.CLAUDEOPS_ARCHIVE_DIR:
        places["the archive of Claude Ops"] = Path(settings.CLAUDEOPS_ARCHIVE_DIR)
    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        places["the database of Claude Ops"] = Path(database["NAME"])
    return places


def default_workdir() -> str:
    return str(settings.CLAUDEOPS_WORKDIR)


def default_interval_minutes() -> int:
    return int(settings.CLAUDEOPS_INTERVAL) // 60


def default_max_tier() -> int:
    return int(settings.CLAUDEOPS_MAX_TIER)


def default_dry_run() -> bool:
    return bool(settings.CLAUDEOPS_DRY_RUN)


def default_approval() -> str:
    return written_tiers(read_tiers(settings.CLAUDEOPS_REQUIRE_APPROVAL))


class Watch(models.Model):
    """System that is looked after: its directory, instructions, schedule, limits and autonomy."""

    DEFAULT_NAME = "default"
    AUTONOMY_FIELDS = ("max_tier", "dry_run", "approval")

    name = models.CharField(max_length=100, unique=True)
    workdir = models.CharField("working directory", max_length=1000, default=default_workdir)
    instructions = OutsideTextField(
        blank=True,
        help_text="Instructions for Tier 1, in your own words.",
    )
    interval_minutes = models.PositiveIntegerField(
        default=default_interval_minutes,
        validators=[MinValueValidator(1)],
        help_text="Time between two scheduled cycles. A cron expression takes precedence.",
    )
    cron = models.CharField(
        max_length=100, blank=True, help_text="For example: 0 3 * * * for every night at three."
    )
    enabled = models.BooleanField(
        default=False,
        help_text="Run on schedule. A watch can be run manually at any time.",
    )
    max_tier = models.PositiveSmallIntegerField(
        default=default_max_tier,
        choices=tier_choices,
        validators=[validate_tier],
        help_text="The supervisor never escalates above this tier.",
    )
    dry_run = models.BooleanField(
        default=default_dry_run,
        help_text="Higher tiers analyse and report, but change nothing.",
    )
    approval = models.CharField(
        "tiers that need approval",
        max_length=20,
        blank=True,
        default=default_approval,
        help_text="Like 3 or 2,3. These tiers start after a person has approved them.",
    )
    budget_day_usd = models.DecimalField(
        "daily budget in US dollars",
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="For all sessions of a day. Empty: CLAUDEOPS_BUDGET_WATCH_DAY.",
    )
    restarts_allowed = models.PositiveSmallIntegerField(
        default=2, help_text="Restarts of one service within the restart hours."
    )
    restart_hours = models.PositiveSmallIntegerField(default=4, validators=[MinValueValidator(1)])
    redeployments_allowed = models.PositiveSmallIntegerField(
        default=1, help_text="Redeployments of one service within the redeployment hours."
    )
    redeployment_hours = models.PositiveSmallIntegerField(
        default=24, validators=[MinValueValidator(1)]
    )
    grants = models.CharField(
        max_length=1000,
        blank=True,
        help_text="Grants in addition to those of the tier, like write:/srv/app "
        "read:/home/me/app -ssh.",
    )
    ask = models.CharField(
        "commands that need approval",
        max_length=1000,
        blank=True,
        help_text="In addition to those of the tier, like Bash(docker restart:*) "
        "Bash(git push:*). They run after a person has approved them.",
    )
    hosts = models.CharField(
        max_length=LONGEST_WORDS,
        blank=True,
        help_text="Names or labels (CLAUDEOPS_HOST_LABELS) of the hosts that may run it, like "
        "lab nas. Empty: any host.",
    )
    manifest_waits = models.BooleanField(
        default=False,
        editable=False,
        help_text=f"{MANIFEST_NAME} differs from the accepted text, as a worker last saw it.",
    )
    failures_in_a_row = models.PositiveIntegerField(default=0, editable=False)
    backed_off_until = models.DateTimeField(null=True, blank=True, editable=False)
    schedule = models.OneToOneField(
        "django_q.Schedule",
        on_delete=models.SET_NULL,
        null=True,
        editable=False,
        related_name="watch",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "watches"

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("web:watch", args=[self.pk])

    def clean(self) -> None:
        """Validate all fields at once, so that a form shows every error."""
        found = {
            "cron": self._problem_with_cron(),
            "approval": _refused_by(read_configured_tiers, self.approval),
            "ask": _refused_by(read_ask_rules, self.ask),
            "hosts": _refused_by(read_host_words, self.hosts),
            "grants": list(parse_grants(self.grants)[1]),
            "workdir": self._problem_with_workdir(),
        }
        if self.budget_day_usd is not None and self.budget_day_usd < 0:
            found["budget_day_usd"] = "A budget cannot be negative."
        if problems := {name: problem for name, problem in found.items() if problem}:
            raise ValidationError(problems)
        self.hosts = " ".join(read_host_words(self.hosts))

    def _problem_with_cron(self) -> str:
        if not self.cron or croniter.is_valid(self.cron):
            return ""
        return f"{self.cron!r} is not a cron expression."

    def _problem_with_workdir(self) -> str:
        if objection := objection_here(self.workdir):
            return objection
        return "" if Path(self.workdir).is_dir() else f"There is no directory {self.workdir}."

    @property
    def policy(self) -> Policy:
        return Policy(
            max_tier=self.max_tier,
            dry_run=self.dry_run,
            approval_tiers=read_tiers(self.approval),
        )

    @property
    def autonomy_level(self) -> AutonomyLevel | None:
        """Autonomy level, or None if the settings match no level."""
        return autonomy_level_of(self.policy)

    @property
    def autonomy_title(self) -> str:
        return autonomy_title(self.policy)

    def set_autonomy_level(self, level: AutonomyLevel) -> None:
        """Set the fields of an autonomy level without saving."""
        policy = level.policy
        self.max_tier, self.dry_run = policy.max_tier, policy.dry_run
        self.approval = written_tiers(policy.approval_tiers)

    @property
    def is_backed_off(self) -> bool:
        """True while the schedule is skipped after repeated failures."""
        return self.backed_off_until is not None and self.backed_off_until > timezone.now()

    @property
    def next_run(self) -> datetime | None:
        """Time of the next scheduled cycle; None for a paused watch."""
        return self.schedule.next_run if self.enabled and self.schedule else None

    @property
    def rhythm(self) -> str:
        """Description of the schedule."""
        if not self.enabled:
            return "paused"
        return self.rhythm_when_on

    @property
    def rhythm_when_on(self) -> str:
        """Description of the schedule, even if the watch is paused."""
        return cron_words(self.cron) if self.cron else interval_words(self.interval_minutes)

    def next_times(self, now: datetime) -> tuple[datetime, ...]:
        """Return the next three scheduled times, for a paused watch as if it were enabled now.

        Times before `backed_off_until` are left out.
        """
        due = self.next_run or now + timedelta(minutes=self.interval_minutes)
        after = max(now, self.backed_off_until) if self.backed_off_until else now
        return next_times(
            cron=self.cron,
            interval_minutes=self.interval_minutes,
            due=due,
            after=timezone.localtime(after),
        )


class Manifest(models.Model):
    """Text of CLAUDE-OPS.md that was accepted for a watch and serves as instructions.

    It has a table of its own, because lists read watches with every row and it may be long.
    """

    watch = models.OneToOneField(Watch, on_delete=models.CASCADE, related_name="manifest")
    text = OutsideTextField(blank=True, help_text="Empty if there was no file.")
    accepted_by = models.CharField(max_length=200, blank=True)
    accepted_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Empty after an upgrade: the text that is found next is accepted.",
    )

    def __str__(self) -> str:
        return f"Manifest of {self.watch.name}"


def _refused_by(read: Callable[[str], object], words: str) -> str:
    try:
        read(words)
    except ValueError as problem:
        return f"{problem}."
    return ""
