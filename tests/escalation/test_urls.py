"""Every address with every method for every role: a second list of who may use it.

On purpose: the table that is tried must not be the one that says what is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.template import Template
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone
from django_q.models import OrmQ, Schedule, Task
from django_q.signing import SignedPackage

from sessions_app.models import (
    Approval,
    BudgetNotice,
    Channel,
    Conversation,
    Cycle,
    DailyVerdict,
    Incident,
    IncidentEvent,
    LoginFailure,
    MetricTotal,
    PauseSwitch,
    PeriodCost,
    RateLimit,
    Session,
    TraceExport,
    Transcript,
    Watch,
    WorkerHeartbeat,
)
from tests.factories import (
    ApiTokenFactory,
    ApprovalFactory,
    ChangeFactory,
    ChannelFactory,
    CycleFactory,
    IncidentFactory,
    MessageFactory,
    NotificationFactory,
    ProbeFactory,
    RemedyFactory,
    RemedyRunFactory,
    SandboxProofFactory,
    ServiceStateFactory,
    SessionEventFactory,
    SessionFactory,
    SourceFactory,
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
    "web:healthz": STRANGER,
    "web:readyz": STRANGER,
    "web:metrics": STRANGER,
    "web:heartbeat": STRANGER,
    "web:heartbeat_part": STRANGER,
    "web:deliver": STRANGER,
    "web:deliver_below": STRANGER,
    "web:enqueue": STRANGER,
    "web:approval_button": STRANGER,
    "web:overview": VIEWER,
    "web:start": VIEWER,
    "web:first_watch": APPROVER,
    "web:sessions": VIEWER,
    "web:session": VIEWER,
    "web:costs": VIEWER,
    "web:change_budget": APPROVER,
    "web:cycle": VIEWER,
    "web:cycles": VIEWER,
    "web:changes": VIEWER,
    "web:change": OPERATOR,
    "web:undo_change": APPROVER,
    "web:cycle_live": OPERATOR,
    "web:cycle_events": OPERATOR,
    "web:sandbox": VIEWER,
    "web:incidents": VIEWER,
    "web:incident": VIEWER,
    "web:autonomy": VIEWER,
    "web:moved": VIEWER,
    "web:watches": VIEWER,
    "web:watch": VIEWER,
    "web:probes": VIEWER,
    "web:add_probe": APPROVER,
    "web:accept_probe": APPROVER,
    "web:dismiss_probe": APPROVER,
    "web:run_probe": OPERATOR,
    "web:mute_probe": OPERATOR,
    "web:remove_probe": APPROVER,
    "web:start_maintenance": OPERATOR,
    "web:end_maintenance": OPERATOR,
    "web:new_watch": APPROVER,
    "web:watch_settings": APPROVER,
    "web:watch_removal": APPROVER,
    "web:watch_remedies": OPERATOR,
    "web:remedy": OPERATOR,
    "web:add_remedy": APPROVER,
    "web:edit_remedy": APPROVER,
    "web:adopt_remedy": APPROVER,
    "web:accept_remedy": APPROVER,
    "web:remove_remedy": APPROVER,
    "web:run_remedy": APPROVER,
    "web:undo_remedy": APPROVER,
    "web:services": VIEWER,
    "web:search": VIEWER,
    "web:board": VIEWER,
    "web:events": VIEWER,
    "web:add_watch": APPROVER,
    "web:edit_watch": APPROVER,
    "web:remove_watch": APPROVER,
    "web:accept_manifest": APPROVER,
    "invited": STRANGER,
    "web:accounts": ADMIN,
    "web:invite_account": ADMIN,
    "web:change_account_role": ADMIN,
    "web:link_account": ADMIN,
    "web:disable_account": ADMIN,
    "web:enable_account": ADMIN,
    "web:save_manifest": APPROVER,
    "web:channels": ADMIN,
    "web:channel": ADMIN,
    "web:add_channel": ADMIN,
    "web:edit_channel": ADMIN,
    "web:test_channel": ADMIN,
    "web:enable_channel": ADMIN,
    "web:disable_channel": ADMIN,
    "web:remove_channel": ADMIN,
    "web:sources": ADMIN,
    "web:source": ADMIN,
    "web:add_source": ADMIN,
    "web:edit_source": ADMIN,
    "web:paths_of_source": ADMIN,
    "web:renew_source": ADMIN,
    "web:test_source": ADMIN,
    "web:enable_source": ADMIN,
    "web:disable_source": ADMIN,
    "web:remove_source": ADMIN,
    "api:docs": VIEWER,
    "web:tokens": VIEWER,
    "web:add_token": VIEWER,
    "web:revoke_token": VIEWER,
    "web:session_live": OPERATOR,
    "web:session_events": OPERATOR,
    "web:session_commands": OPERATOR,
    "web:transcript": OPERATOR,
    "web:approvals": OPERATOR,
    "web:health": OPERATOR,
    "web:approval": OPERATOR,
    "web:approve": APPROVER,
    "web:reject": APPROVER,
    "web:plan": OPERATOR,
    "web:approval_link": STRANGER,
    "web:run_watch": OPERATOR,
    "web:pause_watch": OPERATOR,
    "web:unpause_watch": APPROVER,
    "web:set_autonomy": APPROVER,
    "web:pause_all": OPERATOR,
    "web:unpause_all": OPERATOR,
    "web:lift_limit": OPERATOR,
    "web:accept_proof": APPROVER,
    "web:start_drill": OPERATOR,
    "web:acknowledge_incident": OPERATOR,
    "web:snooze_incident": OPERATOR,
    "web:take_incident": OPERATOR,
    "web:hand_over_incident": OPERATOR,
    "web:note_incident": OPERATOR,
    "web:resolve_incident": OPERATOR,
    "web:reopen_incident": OPERATOR,
    "web:stop_session": OPERATOR,
    "web:stop_cycle": OPERATOR,
    "web:follow_up": OPERATOR,
    "web:fork_session": OPERATOR,
    "web:retry_session": OPERATOR,
    "web:escalate_session": OPERATOR,
    "web:allow_session": APPROVER,
    "web:tell_session": OPERATOR,
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
REFUSING = {"web:metrics", "admin:autocomplete", "admin:login"}
RECORD = (
    *("cycle", "session", "sessionevent", "conversation", "transcript", "approval"),
    *("incident", "incidentevent", "servicestate"),
    *("notification", "message", "delivery", "alert", "refuseddeliveries"),
    *("metrictotal", "traceexport"),
    "applieddeclaration",
    *("remedy", "remedyrun"),
    *("change", "sandboxproof", "periodcost", "dailyverdict", "budgetnotice"),
    *("pauseswitch", "ratelimit", "workerheartbeat"),
    *("probe", "probechange", "probesum", "probelease", "probeproposal"),
    *("heartbeatping", "maintenance"),
    "telegrambot",
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
    if model in QUEUE or model in {"channel", "source", "apitoken", "logentry"}:
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


# The operations of the API have a walk of their own, with tokens: test_api_permissions.py.
ADDRESSES = [
    address
    for address in addresses(get_resolver())
    if not address.name.startswith(("api:", "mcp:")) or address.name == "api:docs"
]


@pytest.fixture
def subject(workdir) -> dict[str, str]:
    """Existing objects for the parameters of an address."""
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
        "sandbox": SandboxProofFactory(worse=True).pk,
        "channels": ChannelFactory().pk,
        "sources": SourceFactory().pk,
        "tokens": ApiTokenFactory().pk,
        "remedies": RemedyFactory(watch=watch).pk,
        "probes": ProbeFactory(watch=watch).pk,
        "approvals": ApprovalFactory().pk,
        "changes": ChangeFactory(session=failed).pk,
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
        "admin/sessions_app/channel": ChannelFactory().pk,
        "admin/sessions_app/remedyrun": RemedyRunFactory().pk,
        "admin/sessions_app/remedy": RemedyFactory().pk,
        "admin/sessions_app/notification": NotificationFactory().pk,
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
        "sandboxproof": SandboxProofFactory(),
        "periodcost": PeriodCost.objects.first(),
        "dailyverdict": DailyVerdict.objects.create(day=today, verdict="deny", count=1),
        "traceexport": TraceExport.objects.create(cycle=session.cycle),
        "metrictotal": MetricTotal.objects.create(name="alerts", labels='["am", "run"]'),
        "budgetnotice": BudgetNotice.objects.create(budget="day", period=today, percent=80),
        "pauseswitch": PauseSwitch.objects.create(pk=PauseSwitch.THE_ONE),
        "ratelimit": RateLimit.objects.create(pk=RateLimit.THE_ONE),
        "workerheartbeat": WorkerHeartbeat.objects.create(host="lab", pid=1),
        "servicestate": ServiceStateFactory(),
        "apitoken": ApiTokenFactory(),
        "source": (source := SourceFactory()),
        "delivery": source.deliveries.create(size=1),
        "alert": source.problems.create(fingerprint="a", service="web", severity=2),
        "refuseddeliveries": source.refused.create(minute=timezone.now(), reason="method"),
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
        "<uidb64>": "MQ",
        "<token>": "no-token-of-ours",
        "<str:part>": "start",
        "<path:rest>": "api/v2/alerts",
        "<int:content_type_id>": str(ContentType.objects.get_for_model(Session).pk),
        "<path:content_type_id>": str(ContentType.objects.get_for_model(Session).pk),
        "^(?P<app_label>admin|auth|django_q|sessions_app)/$": "sessions_app/",
        "(?P<url>.*)$": "nowhere",
        "^walls/(?P<rest>.*)$": "walls/",
        "^targets/(?P<rest>.*)$": "targets/",
        "^watches/(?P<pk>[0-9]+)/trust/(?P<rest>.*)$": "watches/1/trust/",
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
    """Rows that a refused request could have changed."""
    models = (
        *(Watch, Cycle, Session, Approval, Schedule, Task, LoginFailure),
        *(Incident, IncidentEvent, Channel),
    )
    return [OrmQ.objects.count(), *(list(model.objects.values()) for model in models)]


@contextmanager
def pages_left_empty(is_so: bool) -> Iterator[None]:
    """Who is let in is decided before a page is rendered."""
    with pytest.MonkeyPatch.context() as patch:
        if is_so:
            patch.setattr(Template, "render", lambda self, context: "")
        yield


@pytest.mark.parametrize("role", [STRANGER, *ROLES])
def test_every_address_and_method_requires_its_permission(role, subject, caplog):
    caplog.set_level("ERROR", "django.request")  # a refusal is logged
    before, wrong = everything(), []
    denied = [(a, m) for a in ADDRESSES for m in METHODS if role < a.least(m)]
    # Whoever may more than the least is asked the two methods that pages and forms use.
    allowed = [
        (a, m)
        for a in ADDRESSES
        for m in METHODS
        if role == a.least(m) or (role > a.least(m) and m in {"GET", "POST"})
    ]
    client = client_of(role)
    for address, method in denied:
        with pages_left_empty(True):
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
        # A page is rendered for the least role that sees it, and for the one that sees all of it.
        rendered = method in {"GET", "POST"} and role in {address.least(method), ADMIN}
        with pages_left_empty(not rendered):
            response = client.generic(method, filled(address.route, subject))
        kept_out = response.status_code == 403 and address.name not in REFUSING
        if kept_out or response.status_code == 500:
            wrong.append(f"{method} {address.route} kept out: {response.status_code}")
    assert wrong == []


@pytest.mark.parametrize("role", ROLES)
def test_every_role_may_log_out(role):
    assert client_of(role).post(reverse("logout")).status_code == 302


def test_the_test_covers_every_listed_page():
    assert {name for name in PAGES if name not in {a.name for a in ADDRESSES}} == set()
    assert len(ADDRESSES) > 80


def test_account_without_a_role_gets_advice():
    user_with("admin", username="grace")

    page = client_of(NO_ROLE).get("/")

    assert page.status_code == 403
    assert "has no role yet" in page.content.decode()
    assert "grace" in page.content.decode()


def test_inactive_account_has_no_access():
    client = Client()
    client.force_login(user_with("admin", is_active=False))

    assert client.get("/").status_code == 302


def test_view_without_a_permission_is_refused(operator_client, settings):
    settings.ROOT_URLCONF = "tests.escalation.forgetful_urls"

    assert operator_client.get("/forgotten/").status_code == 403


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/walls/?failed=yes&tier=2", "/sandbox/?failed=yes&tier=2"),
        ("/walls/7/accept/", "/sandbox/7/accept/"),
        ("/targets/", "/channels/"),
        ("/targets/7/", "/channels/7/"),
        ("/targets/7/edit/", "/channels/7/edit/"),
        ("/watches/7/trust/", "/watches/7/autonomy/"),
        ("/watches/7/trust/set/", "/watches/7/autonomy/set/"),
        ("/walls//example.org/", "/sandbox//example.org/"),
    ],
)
def test_an_address_of_an_earlier_version_redirects(old, new):
    client = client_of(VIEWER)

    read, posted = client.get(old), client.post(old)

    assert (read.status_code, read["Location"]) == (301, new)
    assert (posted.status_code, posted["Location"]) == (308, new)
