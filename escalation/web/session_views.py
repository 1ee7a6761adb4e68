"""Endpoints that act on a finished session."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from escalation import queue
from escalation.errors import OperationRefused
from escalation.next_step import by_person
from escalation.next_step.starting import what_it_waits_for
from sessions_app.access.guard import acting
from sessions_app.access.roles import Right
from sessions_app.models import Session

UNCONFIRMED = "This may change the system: tick the box to confirm it."


@acting(Right.FOLLOW_UP)
def follow_up(request: HttpRequest, pk: int) -> HttpResponse:
    return _act(
        request,
        pk,
        lambda session, user, text: by_person.follow_up(
            session, text, enqueue=queue.enqueue, requested_by=user
        ),
    )


@acting(Right.RUN)
def fork_session(request: HttpRequest, pk: int) -> HttpResponse:
    return _act(
        request,
        pk,
        lambda session, user, text: by_person.fork(
            session, text, enqueue=queue.enqueue, requested_by=user, confirmed=_confirmed(request)
        ),
        changes=lambda session: session.tier > 1,
    )


@acting(Right.RUN)
def retry_session(request: HttpRequest, pk: int) -> HttpResponse:
    return _act(
        request,
        pk,
        lambda session, user, text: by_person.retry(
            session,
            enqueue=queue.enqueue,
            requested_by=user,
            force_fresh=bool(request.POST.get("fresh")),
            confirmed=_confirmed(request),
        ),
        changes=lambda session: session.tier > 1,
    )


@acting(Right.ESCALATE)
def escalate_session(request: HttpRequest, pk: int) -> HttpResponse:
    return _act(
        request,
        pk,
        lambda session, user, text: by_person.escalate(
            session,
            text,
            enqueue=queue.enqueue,
            requested_by=user,
            force_fresh=bool(request.POST.get("fresh")),
            confirmed=_confirmed(request),
        ),
        changes=lambda session: True,
    )


@acting(Right.STOP)
def stop_session(request: HttpRequest, pk: int) -> HttpResponse:
    session = get_object_or_404(Session, pk=pk)
    if not _confirmed(request):
        messages.warning(request, "Tick the box to confirm that the run is cut off.")
    elif by_person.stop(session, by=request.user.get_username()):
        messages.warning(request, f"Session {session.pk} is being stopped.")
    else:
        messages.warning(request, f"Session {session.pk} is not running any more.")
    return redirect(session)


def _act(
    request: HttpRequest,
    pk: int,
    operate: Callable[[Session, User, str], Session],
    changes: Callable[[Session], bool] = lambda session: False,
) -> HttpResponse:
    session = get_object_or_404(Session.objects.select_related("cycle__watch"), pk=pk)
    if changes(session) and not _confirmed(request):
        messages.warning(request, UNCONFIRMED)
        return redirect(session)
    try:
        created = operate(session, cast(User, request.user), request.POST.get("request", ""))
    except OperationRefused as refused:
        messages.warning(request, str(refused))
        return redirect(session)
    messages.success(request, what_it_waits_for(created))
    return redirect(created)


def _confirmed(request: HttpRequest) -> bool:
    return bool(request.POST.get("confirm"))
