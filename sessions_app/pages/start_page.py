"""What the guide of the first start shows, as plain values: how far somebody has come."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import QueryDict

from sessions_app.models import Cycle, Session, Watch
from sessions_app.pages.running import RunningRow, running_rows, with_steps
from sessions_app.reading.chain import Chain
from sessions_app.reading.report_text import Report, read_report
from sessions_app.reading.stopped import stop_of
from sessions_app.reading.trust_record import Wish, wishes_of

WISHES_SHOWN = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class StartPage:
    watch: Watch | None
    """The one that was made last; None before there is one, or where another is wanted."""
    cycle: Cycle | None = None
    """Its latest round."""
    running: RunningRow | None = None
    stop: str = ""
    report: Report | None = None
    """Of the last run that gave one."""
    wishes: tuple[Wish, ...] = ()
    """What the round wanted and was not given."""

    @property
    def is_over(self) -> bool:
        return self.cycle is not None and not self.cycle.is_active


def load_start(asked: QueryDict) -> StartPage:
    """At most eight short queries."""
    newest = Watch.objects.select_related("schedule").order_by("-pk")
    watch = None if asked.get("new") else newest.first()
    cycle = watch.cycles.order_by("-id").first() if watch else None
    if watch is None or cycle is None:
        return StartPage(watch=watch)
    if cycle.is_active:
        chain = Chain(sessions=tuple(with_steps(cycle.sessions.order_by("id"))))
        [row] = running_rows([cycle], {cycle.pk: chain})
        return StartPage(watch=watch, cycle=cycle, running=row)
    sessions = list(cycle.sessions.order_by("id"))
    return StartPage(
        watch=watch,
        cycle=cycle,
        stop=stop_of(sessions),
        report=_last_report(sessions),
        wishes=_not_given(sessions),
    )


def _last_report(sessions: list[Session]) -> Report | None:
    reports = (read_report(session.report) for session in reversed(sessions))
    return next((report for report in reports if report), None)


def _not_given(sessions: list[Session]) -> tuple[Wish, ...]:
    wished = [one for one in wishes_of(sessions) if not one.given]
    different = {(one.kind, one.what): one for one in wished}
    return tuple(sorted(different.values(), key=lambda one: one.at)[:WISHES_SHOWN])
