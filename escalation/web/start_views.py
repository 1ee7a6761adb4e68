"""Making the first watch, in the guide of the first start."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from sessions_app.access.guard import acting
from sessions_app.access.roles import Right
from sessions_app.pages.first_watch_form import FirstWatchForm
from sessions_app.pages.start_page import StartPage
from sessions_app.pages.start_views import show_start


@acting(Right.CHANGE_WATCHES)
def first_watch(request: HttpRequest) -> HttpResponse:
    form = FirstWatchForm(request.POST)
    if not form.is_valid():
        return show_start(request, StartPage(watch=None), form)
    watch = form.save()
    messages.success(
        request, f"The watch {watch.name} is made. It is off, and it will change nothing."
    )
    return redirect("sessions_app:start")
