"""Remedies: commands and scripts that an operator declared for a watch, by name."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import OuterRef, Subquery
from django.db.models.functions import Lower
from django.urls import reverse
from django.utils import timezone

from sessions_app.grants import GRANTS, parse_grants
from sessions_app.models.approval import Change, FileContent
from sessions_app.models.cycle import Cycle
from sessions_app.models.fields import OutsideCharField, OutsideJSONField, OutsideTextField
from sessions_app.models.incident import Incident
from sessions_app.models.watch import Watch
from sessions_app.tiers import LOWEST_TIER, SAFE, tier_choices, validate_tier

SYSTEM_DIRECTORIES = (
    *("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"),
)
LAUNCHERS = frozenset(
    {
        *("sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "env", "xargs", "nohup", "setsid"),
        *("python", "python3", "perl", "ruby", "node", "awk", "php", "lua", "timeout", "nice"),
        *("su", "doas", "runuser", "chroot", "unshare", "nsenter", "script", "remedy", "sudo"),
    }
)
"""Programs that run what an argument names, so that a hash of them proves nothing."""
LONGEST_SECONDS = 600
MOST_PARAMETERS = 8
LONGEST_VALUE = 200
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_PARAMETER = re.compile(r"[a-z][a-z0-9_]{0,39}")
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_RANGE = re.compile(r"integer\s+(\d{1,9})\.\.(\d{1,9})")
_VALUE = re.compile(r"[^\s\x00-\x1f\x7f-][^\s\x00-\x1f\x7f]*")
_SERVICE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:-]*")
_USER = re.compile(r"[a-z_][a-z0-9_-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One typed argument of a remedy."""

    name: str
    choices: tuple[str, ...] = ()
    """Values of "one of"."""
    least: int = 0
    most: int = 0
    """Bounds of an integer; both are 0 for the other types."""

    @property
    def is_integer(self) -> bool:
        return bool(self.most)

    @property
    def is_service(self) -> bool:
        return not self.choices and not self.is_integer

    def __str__(self) -> str:
        """Return the parameter as an operator writes it."""
        if self.choices:
            return f"{self.name}: one of {' '.join(self.choices)}"
        if self.is_integer:
            return f"{self.name}: integer {self.least}..{self.most}"
        return f"{self.name}: service"

    def short(self) -> str:
        """Return the parameter in a line for the model, such as SERVICE or soft|hard."""
        if self.choices:
            return "|".join(self.choices)
        if self.is_integer:
            return f"{self.least}..{self.most}"
        return self.name.upper()

    def problem(self, value: str, services: Iterable[str]) -> str:
        """Return why a value is refused, or an empty string."""
        if len(value) > LONGEST_VALUE or not _VALUE.fullmatch(value):
            return f"{self.name} must be one plain word that does not begin with a dash"
        if self.choices:
            listed = ", ".join(self.choices)
            return "" if value in self.choices else f"{self.name} must be one of {listed}"
        if self.is_integer:
            number = int(value) if value.isascii() and value.isdecimal() else -1
            inside = self.least <= number <= self.most
            return "" if inside else f"{self.name} must be a number {self.least} to {self.most}"
        known = sorted(set(services))
        if value in known and _SERVICE.fullmatch(value):
            return ""
        listed = ", ".join(known) or "none is known yet"
        return f"{self.name} must be a service of this watch ({listed})"


def read_parameters(text: str) -> tuple[Parameter, ...]:
    """Parse parameters, one on each line: `NAME: service`, `NAME: integer 1..500`, or
    `NAME: one of soft hard`. Raise ValueError for anything else.
    """
    found: list[Parameter] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _colon, kind = (part.strip() for part in line.partition(":"))
        if not _PARAMETER.fullmatch(name):
            raise ValueError(f"{line!r} is not a parameter like `service: service`")
        if name in (parameter.name for parameter in found):
            raise ValueError(f"the parameter {name} is declared twice")
        found.append(_parameter(name, kind))
    if len(found) > MOST_PARAMETERS:
        raise ValueError(f"a remedy has at most {MOST_PARAMETERS} parameters")
    return tuple(found)


def _parameter(name: str, kind: str) -> Parameter:
    if kind == "service":
        return Parameter(name=name)
    if bounds := _RANGE.fullmatch(kind):
        least, most = int(bounds[1]), int(bounds[2])
        if most <= least:
            raise ValueError(f"the bounds of {name} must rise, as in `integer 1..500`")
        return Parameter(name=name, least=least, most=most)
    if kind.startswith("one of "):
        choices = tuple(kind.removeprefix("one of ").split())
        for choice in choices:
            if len(choice) > LONGEST_VALUE or not _VALUE.fullmatch(choice):
                raise ValueError(
                    f"the value {choice!r} of {name} begins with a dash or is too long"
                )
        return Parameter(name=name, choices=choices)
    raise ValueError(
        f"{name} has the unknown type {kind!r}: use `service`, `integer 1..500` or "
        "`one of soft hard`"
    )


def filled(command: Sequence[str], values: dict[str, str]) -> tuple[str, ...]:
    """Put values into a vector. A value never becomes two words."""
    return tuple(
        _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), word) for word in command
    )


def script_position(command: Sequence[str]) -> int | None:
    """Return the position of the script in a vector: its first word, or the one after sudo."""
    position = _program_position(command)
    is_path = position < len(command) and "/" in command[position]
    return position if is_path and not _in_system(command[position]) else None


def _program_position(command: Sequence[str]) -> int:
    """Return the position of the program, behind `sudo [-n] [-u USER] [--]`."""
    if not command or posixpath.basename(command[0]) != "sudo":
        return 0
    position = 1
    while position < len(command) and command[position] in ("-n", "-u", "--"):
        position += 2 if command[position] == "-u" else 1
    return position


def _in_system(path: str) -> bool:
    return posixpath.dirname(path) in SYSTEM_DIRECTORIES


def plain_command(command: Sequence[str]) -> tuple[str, ...]:
    """Return a vector whose programs of the system have their plain names."""
    position = _program_position(command)
    return tuple(
        posixpath.basename(word) if number in (0, position) and _in_system(word) else word
        for number, word in enumerate(command)
    )


def problem_of_command(command: object, parameters: Sequence[Parameter]) -> str:
    """Return why a vector cannot be that of a remedy, or an empty string."""
    if not isinstance(command, list | tuple) or not command:
        return "Give the command: a program and its arguments."
    words = [word for word in command if isinstance(word, str)]
    if len(words) != len(command) or any("\0" in word for word in words) or not words[0]:
        return "The command must be a list of words without NUL characters."
    return _problem_of_program(words) or _problem_of_placeholders(words, parameters)


def _problem_of_program(words: Sequence[str]) -> str:
    position = _program_position(words)
    if position >= len(words):
        return "Name a program after sudo."
    if position and "-u" in words[:position] and not _USER.fullmatch(words[words.index("-u") + 1]):
        return "Name a user of this host after sudo -u."
    program = words[position]
    if position and program.startswith("-"):
        return f"Of the options of sudo a remedy may use -n and -u, not {program}."
    if posixpath.basename(program) in LAUNCHERS:
        return (
            f"{program} runs what its arguments name, so the remedy could not be pinned. Name the "
            "script or program itself; a script says in its first line what interprets it."
        )
    if "/" in program and not program.startswith("/"):
        return f"Name the script by its absolute path, not as {program}."
    return ""


def _problem_of_placeholders(words: Sequence[str], parameters: Sequence[Parameter]) -> str:
    first = words[: _program_position(words) + 1]
    if any(_PLACEHOLDER.search(word) for word in first):
        return "The program itself cannot be a parameter."
    used = {name for word in words for name in _PLACEHOLDER.findall(word)}
    known = {parameter.name for parameter in parameters}
    if unknown := sorted(used - known):
        return f"The command uses {{{unknown[0]}}}, and there is no such parameter."
    if unused := sorted(known - used):
        return f"The command does not use the parameter {unused[0]}: write {{{unused[0]}}} in it."
    return ""


class Remedy(models.Model):
    """Command or script that an operator declared for a watch.

    An agent calls it by name (`remedy restart web`); nothing else of it comes from the agent but
    the values of its parameters. It is stored here, where no agent can write. A script is pinned:
    its content when a person accepted it is kept, and only that content runs.
    """

    class Kind(models.TextChoices):
        LOOK = "look", "look"
        RESTART = Change.Kind.RESTART.value, "restart"
        REDEPLOY = Change.Kind.REDEPLOY.value, "redeployment"
        OTHER = Change.Kind.OTHER.value, "other change"

    watch = models.ForeignKey(Watch, on_delete=models.CASCADE, related_name="remedies")
    name = models.CharField(
        max_length=40,
        validators=[
            RegexValidator(
                rf"\A{_NAME.pattern}\Z", "Use lower case letters, digits and dashes, like restart."
            )
        ],
        help_text="The agent calls it by this name, as in `remedy restart web`.",
    )
    description = OutsideCharField(
        max_length=300, help_text="For the model: what it does, and when to use it."
    )
    command = OutsideJSONField(
        help_text="Program and arguments, such as docker restart {service}. The first word is a "
        "program of the system or the absolute path of a script; no shell reads it.",
    )
    parameters = models.TextField(
        blank=True,
        max_length=2_000,
        help_text="One on each line: `service: service`, `lines: integer 1..500`, "
        "`mode: one of soft hard`.",
    )
    kind = models.CharField(
        max_length=20,
        choices=Kind.choices,
        default=Kind.OTHER,
        help_text="A restart or redeployment counts for the cooldowns of its service.",
    )
    service = models.CharField(
        max_length=200,
        blank=True,
        help_text="Service that it concerns, if no parameter names it.",
    )
    tier = models.PositiveSmallIntegerField(
        "from tier",
        default=SAFE,
        choices=tier_choices,
        validators=[validate_tier],
        help_text="The lowest tier that may run it. At Tier 1 it must only look.",
    )
    grants = models.CharField(
        max_length=200,
        blank=True,
        help_text=f"Grants for its sandbox: {' '.join(GRANTS)}. With `host` it runs on the host.",
    )
    seconds = models.PositiveIntegerField(
        "time limit in seconds",
        default=60,
        validators=[MinValueValidator(1), MaxValueValidator(LONGEST_SECONDS)],
    )
    probe = models.CharField(
        max_length=100, blank=True, help_text="Name of the probe that proves that it helped."
    )
    undo = models.CharField(
        max_length=40, blank=True, help_text="Name of the remedy that undoes this one."
    )
    tier0_hours = models.PositiveSmallIntegerField(
        "run at once",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(24 * 30)],
        help_text="Tier 0: run it without a model when its probe fails, at most once in this many "
        "hours. Empty: never.",
    )
    enabled = models.BooleanField(default=True)
    script = models.ForeignKey(
        FileContent,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        editable=False,
        related_name="remedies",
        help_text="Content of the script that a person accepted.",
    )
    accepted_by = models.CharField(max_length=200, blank=True, editable=False)
    accepted_at = models.DateTimeField(null=True, blank=True, editable=False)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "remedies"
        constraints = [
            models.UniqueConstraint(
                "watch",
                Lower("name"),
                name="one_remedy_of_a_name",
                violation_error_message="This watch has a remedy of that name.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.watch.name})"

    def get_absolute_url(self) -> str:
        return reverse("web:remedy", args=[self.pk])

    def clean(self) -> None:
        """Validate all fields at once, so that a form shows every error."""
        found: dict[str, str | list[str]] = {}
        parameters: tuple[Parameter, ...] = ()
        try:
            parameters = read_parameters(self.parameters)
        except ValueError as problem:
            found["parameters"] = f"{problem}."
        if "parameters" not in found:
            found["command"] = problem_of_command(self.command, parameters)
        found["grants"] = problems_of_grants(self.grants)
        if self.tier == LOWEST_TIER and self.kind != self.Kind.LOOK:
            found["tier"] = "A remedy of Tier 1 must be of the kind look."
        if self.tier == LOWEST_TIER and "host" in self.grants.split():
            found["grants"] = "A remedy of Tier 1 runs in a sandbox: leave out host."
        elif "grants" in found and not found["grants"] and not found.get("command"):
            found["grants"] = _problem_of_sudo(self.command, self.grants.split())
        found |= self._problems_of_names(parameters)
        if problems := {name: problem for name, problem in found.items() if problem}:
            raise ValidationError(problems)
        self.command = list(plain_command(self.command))
        self.parameters = "\n".join(map(str, parameters))
        self.grants = " ".join(dict.fromkeys(self.grants.replace(",", " ").split()))

    def _problems_of_names(self, parameters: Sequence[Parameter]) -> dict[str, str]:
        found = {}
        if self.tier0_hours and not self.probe:
            found["probe"] = "Tier 0 needs the probe that starts and proves it."
        if self.tier0_hours and any(not parameter.is_service for parameter in parameters):
            found["tier0_hours"] = "Tier 0 knows only the service: other parameters have no value."
        if self.undo and self.undo == self.name:
            found["undo"] = "A remedy cannot undo itself."
        if self.service and not _SERVICE.fullmatch(self.service):
            found["service"] = "Name a service in one plain word."
        if self.service and any(parameter.is_service for parameter in parameters):
            found["service"] = "A parameter names the service already: leave this empty."
        return found

    @property
    def declared_parameters(self) -> tuple[Parameter, ...]:
        return read_parameters(self.parameters)

    @property
    def script_path(self) -> str:
        """Path of the script; empty for a program of the system."""
        position = script_position(self.command)
        return "" if position is None else str(self.command[position])

    @property
    def command_text(self) -> str:
        """Vector as a shell would quote it."""
        return shlex.join(map(str, self.command))

    @property
    def usage(self) -> str:
        """Name and parameters, as in `restart SERVICE`."""
        return " ".join((self.name, *(each.short() for each in self.declared_parameters)))


class RemedyRunQuerySet(models.QuerySet["RemedyRun"]):
    def with_undo(self) -> RemedyRunQuerySet:
        """Add `undo_state`: that of the last run which undoes each, or None; and its remedy."""
        undone = RemedyRun.objects.filter(undoes=OuterRef("pk")).exclude(
            state__in=[RemedyRun.State.FAILED, RemedyRun.State.REFUSED]
        )
        state = Subquery(undone.order_by("-pk").values("state")[:1])
        return self.annotate(**{"undo_state": state}).select_related("remedy")


class RemedyRun(models.Model):
    """Use of a remedy by a person or, at Tier 0, by the supervisor: from request to result.

    An agent's use is a command of its session instead.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "waits for a worker"
        RUNNING = "running", "runs"
        SUCCEEDED = "succeeded", "succeeded"
        FAILED = "failed", "failed"
        REFUSED = "refused", "did not run"

    class Trigger(models.TextChoices):
        PERSON = "person", "a person"
        PROBE = "probe", "a failing probe (Tier 0)"

    class Proof(models.TextChoices):
        NONE = "", "not proved"
        WAITS = "waits", "the probe looks"
        HELPED = "helped", "the probe is up"
        NO_HELP = "no_help", "the probe still fails"

    OPEN = (State.QUEUED, State.RUNNING)

    remedy = models.ForeignKey(
        Remedy, on_delete=models.SET_NULL, null=True, blank=True, related_name="runs"
    )
    name = models.CharField(max_length=40, help_text="Name of the remedy then.")
    watch = models.ForeignKey(Watch, on_delete=models.CASCADE, related_name="remedy_runs")
    incident = models.ForeignKey(
        Incident, on_delete=models.SET_NULL, null=True, blank=True, related_name="remedy_runs"
    )
    cycle = models.ForeignKey(
        Cycle,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="remedy_runs",
        help_text="Cycle that began because it did not help.",
    )
    undoes = models.ForeignKey(
        "self",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="undone_by",
        help_text="Run that this one undoes.",
    )
    arguments = OutsideJSONField(default=list, blank=True)
    kind = models.CharField(max_length=20, choices=Remedy.Kind.choices)
    service = models.CharField(max_length=200, blank=True, help_text="Normalised name.")
    trigger = models.CharField(max_length=20, choices=Trigger.choices, default=Trigger.PERSON)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    by_name = models.CharField(max_length=200, blank=True)
    evidence = OutsideJSONField(
        default=list, blank=True, help_text="Facts of the failing probes, for Tier 0."
    )
    state = models.CharField(max_length=20, choices=State.choices, default=State.QUEUED)
    asked_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    output = OutsideTextField(blank=True, help_text="Redacted, and cut.")
    why = OutsideCharField(max_length=300, blank=True, help_text="Why it did not run or was ended.")
    proof = models.CharField(max_length=10, choices=Proof.choices, blank=True, default=Proof.NONE)

    undo_state: str | None
    """Added by `with_undo`."""

    objects = RemedyRunQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [
            # Runs of a watch, newest first; cooldowns count the latest.
            models.Index(fields=["watch", "-id"], name="remedyrun_watch"),
            models.Index(fields=["incident", "-id"], name="remedyrun_incident"),
            # What a dead worker left.
            models.Index(fields=["state"], name="remedyrun_state"),
        ]

    def __str__(self) -> str:
        return f"{self.call}: {self.get_state_display()}"

    @property
    def call(self) -> str:
        """The call as an agent would write it."""
        return shlex.join(["remedy", self.name, *map(str, self.arguments)])

    @property
    def is_open(self) -> bool:
        return self.state in self.OPEN

    @property
    def undo_name(self) -> str:
        """Name of the remedy that undoes this run; empty if none does or nothing ran."""
        ran = self.state in (self.State.SUCCEEDED, self.State.FAILED)
        return self.remedy.undo if self.remedy and ran else ""

    @property
    def result(self) -> str:
        """Result in a few words, for pages and terminals."""
        parts = [str(self.get_state_display())]
        if self.exit_code is not None:
            parts.append(f"exit code {self.exit_code}")
        if self.why:
            parts.append(self.why)
        if self.proof:
            parts.append(str(self.get_proof_display()))
        return ", ".join(parts)


def _problem_of_sudo(command: Sequence[str], grants: Sequence[str]) -> str:
    if not _program_position(command):
        return ""
    if "host" not in grants:
        return "sudo works on the host alone: add the grant host."
    if "-u" in command[: _program_position(command)] and script_position(command) is not None:
        return "A script runs as the user of the worker, or with sudo as root."
    return ""


def problems_of_grants(words: str) -> list[str]:
    wishes, problems = parse_grants(words)
    return [
        *problems,
        *(
            f"A remedy takes names of grants alone: give {wish.kind}:{wish.path} to the watch."
            for wish in wishes
            if wish.path
        ),
        *(
            f"-{wish.kind}: a remedy has only the grants that it names."
            for wish in wishes
            if wish.removes
        ),
    ]
