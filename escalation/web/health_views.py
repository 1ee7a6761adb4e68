"""For monitors: no login, no secrets, one look."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from escalation.host.health import readiness
from sessions_app.access.roles import Right, may


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """The web server lives."""
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """All that is needed for a cycle is there; 503 where it is not.

    To strangers it says which check failed, not what it found: that names paths of this machine.
    """
    checks = readiness()
    known = may(request.user, Right.SEE)
    answer = {
        check.name: {"ok": check.ok, **({"said": check.said} if known else {})} for check in checks
    }
    ready = all(check.ok for check in checks)
    return JsonResponse({"ready": ready, "checks": answer}, status=200 if ready else 503)
