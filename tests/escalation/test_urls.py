"""Every address, by every method, for every role: who gets in is written down here a second time.

On purpose: the table that is tried must not be the one that says what is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone
from django_q.models import OrmQ, Schedule, Task
from django_q.signing import SignedPackage

from sessions_app.models import (
    AccountClock,
    Approval,
    BudgetNotice,
    Conversation,
    Cycle,
    DailyVerdict,
    Incident,
    IncidentEvent,
    LoginFailure,
    PauseSwitch,
    PeriodCost,
    Session,
    Target,
    Transcript,
    Watch,
    WorkerBeat,
)
from tests.factories import (
    ApprovalFactory,
    ChangeFactory,
    CycleFactory,
    HappeningFactory,
    IncidentFactory,
    MessageFactory,
    ServiceStateFactory,
    SessionEventFactory,
    SessionFactory,
    TargetFactory,
    WallsProofFactory,
    WatchFactory,
    user_with,
)

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("fake_cli"),
    pytest.mark.timeout(600),  # every address by every method
]

LOGINS = ("/login/", "/admin/login/")
READING = ("GET", "HEAD", "OPTIONS")
METHODS = (*READING, "POST", "PUT", "PATCH", "DELETE")
STRANGER, NO_ROLE, VIEWER, OPERATOR, APPROVER, ADMIN, NOBODY = range(7)
ROLES = {NO_ROLE: "", VIEWER: "viewer", OPERATOR: "operator", APPROVER: "approver", ADMIN: "admin"}

# The least that one must be.
PAGES = {
    "login": STRANGER,
    "logout": NO_ROLE,
    "password": NO_ROLE,
    "escalation:healthz": STRANGER,
    "escalation:readyz": STRANGER,
    "sessions_app:dashboard": VIEWER,
    "sessions_app:start": VIEWER,
    "escalation:first_watch": APPROVER,
    "sessions_app:sessions": VIEWER,
    "sessions_app:session": VIEWER,
    "sessions_app:costs": VIEWER,
    "sessions_app:cycle": VIEWER,
    "sessions_app:cycles": VIEWER,
    "sessions_app:changes": VIEWER,
    "sessions_app:cycle_live": OPERATOR,
    "sessions_app:cycle_events": OPERATOR,
    "sessions_app:walls": VIEWER,
    "sessions_app:incidents": VIEWER,
    "sessions_app:incident": VIEWER,
    "sessions_app:trust": VIEWER,
    "sessions_app:watches": VIEWER,
    "sessions_app:watch": VIEWER,
    "sessions_app:new_watch": APPROVER,
    "sessions_app:watch_settings": APPROVER,
    "sessions_app:watch_removal": APPROVER,
    "sessions_app:services": VIEWER,
    "sessions_app:events": VIEWER,
    "escalation:add_watch": APPROVER,
    "escalation:edit_watch": APPROVER,
    "escalation:remove_watch": APPROVER,
    "sessions_app:targets": ADMIN,
    "sessions_app:target": ADMIN,
    "escalation:add_target": ADMIN,
    "escalation:edit_target": ADMIN,
    "escalation:test_target": ADMIN,
    "escalation:enable_target": ADMIN,
    "escalation:disable_target": ADMIN,
    "escalation:remove_target": ADMIN,
    "sessions_app:session_live": OPERATOR,
    "sessions_app:session_events": OPERATOR,
    "sessions_app:session_commands": OPERATOR,
    "sessions_app:transcript": OPERATOR,
    "sessions_app:approvals": OPERATOR,
    "sessions_app:health": OPERATOR,
    "sessions_app:approval": OPERATOR,
    "escalation:approve": APPROVER,
    "escalation:reject": APPROVER,
    "escalation:plan": OPERATOR,
    "escalation:approval_link": STRANGER,
    "escalation:run_watch": OPERATOR,
    "escalation:pause_watch": OPERATOR,
    "escalation:unpause_watch": APPROVER,
    "escalation:set_trust": APPROVER,
    "escalation:pause_all": OPERATOR,
    "escalation:unpause_all": OPERATOR,
    "escalation:lift_limit": OPERATOR,
    "escalation:accept_walls": APPROVER,
    "escalation:start_drill": OPERATOR,
    "escalation:acknowledge_incident": OPERATOR,
    "escalation:snooze_incident": OPERATOR,
    "escalation:take_incident": OPERATOR,
    "escalation:hand_over_incident": OPERATOR,
    "escalation:note_incident": OPERATOR,
    "escalation:resolve_incident": OPERATOR,
    "escalation:reopen_incident": OPERATOR,
    "escalation:stop_session": OPERATOR,
    "escalation:stop_cycle": OPERATOR,
    "escalation:follow_up": OPERATOR,
    "escalation:fork_session": OPERATOR,
    "escalation:retry_session": OPERATOR,
    "escalation:escalate_session": OPERATOR,
    "admin:login": STRANGER,
    "admin:index": OPERATOR,
    "admin:logout": OPERATOR,
    "admin:jsi18n": OPERATOR,
    "admin:app_list": OPERATOR,
    "admin:view_on_site": OPERATOR,
    "admin:password_change": OPERATOR,
    "admin:password_change_done": OPERATOR,
    "admin:autocomplete": OPERATOR,
    "admin:auth_user_password_change": ADMIN,
}
# The first wants to know what for; the second tells who is logged in that it may not go on.
REFUSING = {"admin:autocomplete", "admin:login"}
RECORD = (
    *("cycle", "session", "sessionevent", "conversation", "transcript", "approval"),
    *("incident", "incidentevent", "servicestate"),
    *("happening", "message"),
    *("change", "wallsproof", "periodcost", "dailyverdict", "budgetnotice"),
    *("pauseswitch", "accountclock", "workerbeat"),
)
QUEUE = ("schedule", "success", "failure", "ormq")


@dataclass(frozen=True)
class Address:
    name: str
    route: str

    def least(self, method: str) -> int:
        return PAGES[self.name] if self.name in PAGES else least_in_admin(self.name, method)


def least_in_admin(name: str, method: str) -> int:
    """Lists and pages of one model."""
    if name in {"admin:", "admin:None"}:  # redirects and addresses that lead nowhere
        return OPERATOR
    model, kind = name.rpartition("_")[0].rpartition("_")[2], name.rpartition("_")[2]
    shows = kind in {"changelist", "history"} or (kind == "change" and method != "POST")
    if model == "watch":
        return OPERATOR if shows else APPROVER
    if model in RECORD:
        return OPERATOR if shows else NOBODY
    if model in QUEUE or model in {"target", "logentry"}:
        return ADMIN if shows else NOBODY
    if model == "loginfailure":
        return ADMIN if shows or kind == "delete" else NOBODY
    assert model == "user", f"{name} is in no table: say who may"
    return ADMIN


def addresses(resolver: URLResolver, prefix: str = "", space: str = "") -> Iterator[Address]:
    for pattern in resolver.url_patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            inner = pattern.namespace or space.rstrip(":")
            yield from addresses(pattern, route, f"{inner}:" if inner else "")
        elif isinstance(pattern, URLPattern):
            yield Address(f"{space}{pattern.name or ''}", route)


ADDRESSES = list(addresses(get_resolver()))


@pytest.fixture
def subject(workdir) -> dict[str, str]:
    """What the parts of an address may stand for: something that is there."""
    watch = WatchFactory(name="shop", workdir=str(workdir))
    failed = SessionFactory(failed=True, workdir=str(workdir), cycle=CycleFactory(watch=watch))
    incident = IncidentFactory(watch=watch)
    numbers = {
        "watches": watch.pk,
        "incidents": incident.pk,
        "admin/sessions_app/incidentevent": incident.events.create(kind="opened").pk,
        "admin/sessions_app/incident": incident.pk,
        "sessions": failed.pk,
        "cycles": failed.cycle.pk,
        "walls": WallsProofFactory(worse=True).pk,
        "targets": TargetFactory().pk,
        "approvals": ApprovalFactory().pk,
        "admin/sessions_app/approval": ApprovalFactory().pk,
        "admin/sessions_app/watch": watch.pk,
        "admin/sessions_app/session": failed.pk,
        "admin/sessions_app/cycle": failed.cycle.pk,
        "admin/auth/user": user_with("").pk,
        "admin/django_q/schedule": Schedule.objects.get(watch=watch).pk,
        "admin/sessions_app/loginfailure": LoginFailure.objects.create(username="ada").pk,
        "admin/sessions_app/sessionevent": SessionEventFactory(session=failed).pk,
        "admin/sessions_app/conversation": Conversation.objects.create(session_id="a").pk,
        "admin/sessions_app/transcript": Transcript.objects.create(session_id="a").pk,
        "admin/django_q/success": a_task("done", success=True),
        "admin/django_q/failure": a_task("lost", success=False),
        "admin/django_q/ormq": OrmQ.objects.create(payload=SignedPackage.dumps({})).pk,
        "admin/sessions_app/target": TargetFactory().pk,
        "admin/sessions_app/happening": HappeningFactory().pk,
        "admin/sessions_app/message": MessageFactory().pk,
        "admin/r": failed.pk,
        "admin/admin/logentry": LogEntry.objects.create(user=user_with(""), action_flag=2).pk,
        **books(failed),
    }
    return {f"{start}/": str(number) for start, number in numbers.items()}


def books(session: Session) -> dict[str, int]:
    """Rows about the installation itself. Factories have made some of them."""
    today = timezone.localdate()
    made = {
        "change": ChangeFactory(session=session),
        "wallsproof": WallsProofFactory(),
        "periodcost": PeriodCost.objects.first(),
        "dailyverdict": DailyVerdict.objects.create(day=today, verdict="deny", count=1),
        "budgetnotice": BudgetNotice.objects.create(budget="day", period=today, percent=80),
        "pauseswitch": PauseSwitch.objects.create(pk=PauseSwitch.THE_ONE),
        "accountclock": AccountClock.objects.create(pk=AccountClock.THE_ONE),
        "workerbeat": WorkerBeat.objects.create(host="lab", pid=1),
        "servicestate": ServiceStateFactory(),
    }
    return {f"admin/sessions_app/{model}": row.pk for model, row in made.items()}


def a_task(name: str, *, success: bool) -> str:
    now = timezone.now()
    facts = {"name": name, "func": "os.system", "started": now, "stopped": now}
    return str(Task.objects.create(id=name, success=success, **facts).pk)


def filled(route: str, subject: dict[str, str]) -> str:
    number = next((n for start, n in subject.items() if route.startswith(start)), "1")
    parts = {
        "<int:pk>": number,
        "<path:object_id>": number,
        "<id>": number,
        "<str:token>": "no-token-of-ours",
        "<int:content_type_id>": str(ContentType.objects.get_for_model(Session).pk),
        "<path:content_type_id>": str(ContentType.objects.get_for_model(Session).pk),
        "^(?P<app_label>admin|auth|django_q|sessions_app)/$": "sessions_app/",
        "(?P<url>.*)$": "nowhere",
    }
    for part, value in parts.items():
        route = route.replace(part, value)
    if "app_label" in route:
        route = "admin/sessions_app/"
    assert not set("<>^$()") & set(route), f"the walk cannot fill {route}"
    return f"/{route}"


def client_of(role: int) -> Client:
    client = Client(raise_request_exception=False)
    if role != STRANGER:
        client.force_login(user_with(ROLES[role], is_staff=True))
    return client


def everything() -> list[object]:
    """All that somebody who may not could have changed."""
    models = (
        *(Watch, Cycle, Session, Approval, Schedule, Task, LoginFailure),
        *(Incident, IncidentEvent, Target),
    )
    return [OrmQ.objects.count(), *(list(model.objects.values()) for model in models)]


@pytest.mark.parametrize("role", [STRANGER, *ROLES])
def test_every_address_by_every_method_is_for_those_who_may(role, subject):
    before, wrong = everything(), []
    denied = [(a, m) for a in ADDRESSES for m in METHODS if role < a.least(m)]
    allowed = [(a, m) for a in ADDRESSES for m in METHODS if role >= a.least(m)]
    client = client_of(role)
    for address, method in denied:
        response = client.generic(method, filled(address.route, subject))
        to_the_login = response.status_code == 302 and response["Location"].startswith(LOGINS)
        if response.status_code != 403 and not (role == STRANGER and to_the_login):
            wrong.append(f"{method} {address.route} let in: {response.status_code}")
    assert wrong == []
    assert everything() == before

    user = client.session.get("_auth_user_id")
    for address, method in allowed:
        if user and address.name.endswith("logout"):
            continue  # tried below: it ends the walk
        response = client.generic(method, filled(address.route, subject))
        kept_out = response.status_code == 403 and address.name not in REFUSING
        if kept_out or response.status_code == 500:
            wrong.append(f"{method} {address.route} kept out: {response.status_code}")
    assert wrong == []


@pytest.mark.parametrize("role", ROLES)
def test_everybody_may_leave(role):
    assert client_of(role).post(reverse("logout")).status_code == 302


def test_the_walk_covers_the_pages_that_are_written_down():
    assert {name for name in PAGES if name not in {a.name for a in ADDRESSES}} == set()
    assert len(ADDRESSES) > 80


def test_an_account_without_a_role_is_told_whom_to_ask():
    user_with("admin", username="grace")

    page = client_of(NO_ROLE).get("/")

    assert page.status_code == 403
    assert "has no role yet" in page.content.decode()
    assert "grace" in page.content.decode()


def test_an_account_that_was_switched_off_gets_nowhere():
    client = Client()
    client.force_login(user_with("admin", is_active=False))

    assert client.get("/").status_code == 302


def test_a_view_that_names_no_right_is_for_nobody(operator_client, settings):
    settings.ROOT_URLCONF = "tests.escalation.forgetful_urls"

    assert operator_client.get("/forgotten/").status_code == 403
