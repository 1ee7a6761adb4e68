"""What the pictures show: drills that really ran, and the pages that tell of them."""

from __future__ import annotations

from collections.abc import Callable

from django.urls import reverse

from escalation.next_step.cycles import leave_to_caller
from escalation.rehearsal.drills.drill import start_drill, verify_drill
from escalation.rehearsal.screenshots.camera import Picture
from escalation.run.foreground import run_to_end
from sessions_app.models import Cycle, Incident, Session

PLAYED = ("all-healthy", "fixed-at-tier-2", "three-tiers")


def play(say: Callable[[str], None]) -> list[Cycle]:
    """The real CLI, the real walls, the real resume; only the model's side is scripted."""
    return [_played(name, say) for name in PLAYED]


def pictures(cycles: list[Cycle]) -> tuple[Picture, ...]:
    longest = Session.objects.filter(cycle=cycles[-1]).order_by("-tier", "pk").first()
    incident = Incident.objects.filter(cycles=cycles[-1]).first()
    found = [
        Picture(file="screenshot.png", path=longest.get_absolute_url() if longest else "/"),
        Picture(file="docs/costs.png", path=reverse("sessions_app:costs") + "?drills=yes&period=7"),
        Picture(file="docs/now-dark.png", path="/", colours="dark"),
    ]
    if incident:
        found.append(Picture(file="docs/incident.png", path=incident.get_absolute_url()))
    return tuple(found)


def _played(name: str, say: Callable[[str], None]) -> Cycle:
    say(f"Playing {name} …")
    cycle = start_drill(name, enqueue=leave_to_caller)
    run_to_end(cycle, lambda line: None)
    if verification := verify_drill(cycle, enqueue=leave_to_caller):
        run_to_end(verification, lambda line: None)
    return cycle
