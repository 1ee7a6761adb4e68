"""The pages of incidents: inbox, list and one incident."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from escalation.web.overview import load_inbox
from sessions_app.history.incidents import (
    Mark,
    approvals_of,
    changes_of,
    cost_of,
    postmortem,
    sentence_of,
    timeline,
)
from sessions_app.models import Incident, IncidentEvent
from tests.factories import (
    ApprovalFactory,
    ChangeFactory,
    CycleFactory,
    IncidentFactory,
    ServiceStateFactory,
    SessionFactory,
    UserFactory,
    WatchFactory,
    three_tier_chain,
)

pytestmark = pytest.mark.django_db
State, Kind, Step = Incident.State, Incident.Kind, IncidentEvent.Kind
LATER = timezone.now() + timedelta(hours=3)


def titles() -> list[str]:
    return [row.incident.title for row in load_inbox().rows]


def page_of(client, **parameters: str) -> str:
    page: str = client.get(reverse("web:incidents"), parameters).content.decode()
    return page


def test_the_inbox_is_sorted_by_need_and_severity():
    IncidentFactory(title="taken", severity=3, state=State.ACKNOWLEDGED, owner=UserFactory())
    IncidentFactory(title="asks a little", severity=1)
    IncidentFactory(title="asks", severity=2)
    IncidentFactory(title="rests", severity=3, snoozed_until=LATER)

    assert titles() == ["asks", "asks a little", "taken", "rests"]


def test_every_unresolved_incident_is_in_the_inbox():
    for state in State:
        IncidentFactory(state=state)
    IncidentFactory(healthy_cycles=1)
    IncidentFactory(snoozed_until=LATER)

    assert load_inbox().unresolved == len(titles()) == 6


def test_the_inbox_counts_problems_failed_cycles_and_work_in_progress():
    IncidentFactory()
    IncidentFactory(kind=Kind.COULD_NOT_RUN)
    IncidentFactory(state=State.WORKING)
    IncidentFactory(drill="x", watch=None)

    inbox = load_inbox()

    assert (inbox.needs_person, inbox.could_not_run, inbox.in_hand) == (1, 1, 1)


def test_incidents_that_resolved_themselves_are_mentioned_for_a_day(operator_client):
    over = {"state": State.RESOLVED, "resolved_as": "itself"}
    IncidentFactory(**over, resolved_at=timezone.now())
    IncidentFactory(**over, resolved_at=timezone.now() - timedelta(days=2))

    page = operator_client.get(reverse("web:overview")).content.decode()

    assert "1 resolved within the last day" in page


def test_incidents_beyond_the_limit_are_counted():
    for _ in range(15):
        IncidentFactory()

    assert (len(load_inbox().rows), load_inbox().not_shown) == (12, 3)


def test_an_empty_list_explains_incidents(operator_client):
    assert "There has been no incident yet" in page_of(operator_client)


def test_unresolved_incidents_come_first(operator_client):
    IncidentFactory(title="still there", severity=1)
    IncidentFactory(title="over long ago", severity=3, state=State.RESOLVED)

    page = page_of(operator_client)

    assert page.index("still there") < page.index("over long ago")


def test_the_list_is_filtered(operator_client):
    shop = WatchFactory(name="shop")
    IncidentFactory(title="in the shop", watch=shop)
    IncidentFactory(title="elsewhere")
    IncidentFactory(title="it is over", watch=shop, state=State.RESOLVED)
    IncidentFactory(title="rehearsed", watch=None, drill="x", scope="drill:x")

    assert "elsewhere" not in page_of(operator_client, watch=str(shop.pk))
    assert "it is over" not in page_of(operator_client, state="unresolved")
    assert "in the shop" not in page_of(operator_client, state="resolved")
    assert "rehearsed" not in page_of(operator_client)
    assert "rehearsed" in page_of(operator_client, drill="yes")
    assert "in the shop" in page_of(operator_client, state="nonsense", watch="x", page="-3")


def test_the_list_shows_cost_and_time_of_a_fix(operator_client):
    now = timezone.now()
    incident = IncidentFactory(
        state=State.RESOLVED,
        resolved_as="agent",
        first_seen_at=now - timedelta(minutes=20),
        resolved_at=now,
    )
    incident.cycles.add(SessionFactory().cycle)

    page = page_of(operator_client)

    assert "$0.03" in page
    assert "20 min 00 s" in page


def test_the_page_lists_the_events_in_order(operator_client):
    incident = IncidentFactory(title="web is <down>", remedy="restarted web", times_reopened=1)
    session = SessionFactory()
    incident.cycles.add(session.cycle)
    for kind, text in (("opened", "first"), ("fixed", "second"), ("did_not_hold", "third")):
        incident.events.create(kind=kind, text=text, cycle=session.cycle)
    incident.events.create(kind="noted", text="fourth", by=UserFactory(username="ada"))
    ChangeFactory(session=session, action="docker restart web")

    page = operator_client.get(incident.get_absolute_url()).content.decode()

    positions = [page.index(f">{word}<") for word in ("first", "second", "third", "fourth")]
    assert positions == sorted(positions)
    assert "web is &lt;down&gt;" in page
    assert "by ada" in page
    assert "docker restart web" in page
    assert "Did not hold:" in page


def test_consecutive_sightings_are_one_line():
    incident = IncidentFactory()
    for kind, text in [("opened", ""), *[("seen", "down")] * 3, ("seen", "slow"), ("noted", "")]:
        incident.events.create(kind=kind, text=text)

    lines = timeline(incident, incident.events.all())

    assert [line.times for line in lines] == [1, 3, 1, 1]


def test_the_timeline_tells_asked_answered_and_changed_and_the_post_mortem_quotes_them():
    ada, session = UserFactory(username="ada"), SessionFactory(tier=2)
    began = timezone.now() - timedelta(minutes=5)
    incident = IncidentFactory(
        title="web: pool exhausted",
        found_by="probe",
        state=State.RESOLVED,
        resolved_as="agent",
        first_seen_at=began,
        resolved_at=began + timedelta(seconds=18),
    )
    incident.cycles.add(session.cycle)

    def at(seconds: int) -> dict[str, object]:
        return {"at": began + timedelta(seconds=seconds)}

    incident.events.create(kind="opened", text="[x](http://evil) `down`", **at(0))
    incident.events.create(kind="approved", by=ada, session=session, **at(2))
    incident.events.create(kind="verified", **at(18))
    ApprovalFactory(
        session=session,
        kind="command",
        command="docker restart web",
        state="approved",
        way="link",
        asked_at=began + timedelta(seconds=1),
        decided_at=began + timedelta(seconds=2),
        decided_by=ada,
    )
    ChangeFactory(session=session, command="sh -c ```", **at(3))
    cost = cost_of(incident)

    entries = timeline(
        incident, incident.events.all(), approvals_of(incident), changes_of(incident), cost
    )

    assert [entry.mark for entry in entries] == [
        *(Mark.SEEN, Mark.ASKED, Mark.APPROVED, Mark.CHANGED, Mark.VERIFIED),
    ]
    assert (entries[0].title, entries[2].by) == ("Seen by a probe", "ada")
    assert entries[2].way == "by the link in a message"
    now = timezone.now()
    assert sentence_of(incident, cost, now) == "web: pool exhausted, fixed in 18 s for $0.03"
    whole, little = (
        postmortem(incident, entries, cost, now=now, with_output=sees) for sees in (True, False)
    )
    assert r"\[x\](http://evil) \`down\`" in whole
    assert "````sh\nsh -c ```\n````" in whole
    assert "sh -c" not in little


def test_the_timeline_is_sent_again_only_when_it_changed(operator_client):
    incident = IncidentFactory()
    first = operator_client.get(incident.get_absolute_url()).context["page"].version
    again = {"version": first}
    asked = {"headers": {"HX-Request": "true"}}
    assert operator_client.get(incident.get_absolute_url(), again, **asked).status_code == 204

    incident.events.create(kind="noted", text="The disk is full.")

    answer = operator_client.get(incident.get_absolute_url(), again, **asked)
    assert "The disk is full." in answer.content.decode()


def test_of_many_events_the_last_are_shown(operator_client, monkeypatch):
    monkeypatch.setattr("escalation.web.incidents.LONGEST_STORY", 2)
    incident = IncidentFactory()
    for text in ("first", "second", "third"):
        incident.events.create(kind="noted", text=text)

    page = operator_client.get(incident.get_absolute_url()).content.decode()

    assert "Only the last steps are shown" in page
    assert "first</p>" not in page
    assert page.index("second</p>") < page.index("third</p>")


def test_the_page_lists_similar_incidents_of_this_and_other_watches(operator_client):
    watch = WatchFactory()
    first = IncidentFactory(watch=watch, cause="web", state=State.RESOLVED)
    asked = IncidentFactory(watch=watch, cause="web")
    elsewhere = IncidentFactory(cause="web", remedy="restarted it")
    IncidentFactory(cause="db")
    IncidentFactory(cause="web", drill="three-tiers", watch=None, scope="drill:three-tiers")

    page = operator_client.get(asked.get_absolute_url())

    assert page.context["page"].similar == (elsewhere, first)
    for words in (first.get_absolute_url(), elsewhere.watch_name, "restarted it"):
        assert words in page.content.decode()


def test_the_cost_of_each_chain_is_shown_once(operator_client):
    chain = three_tier_chain()
    incident = IncidentFactory()
    incident.cycles.add(chain[0].cycle)
    for kind in ("opened", "worked_on"):
        incident.events.create(kind=kind, cycle=chain[0].cycle, session=chain[1])

    page = operator_client.get(incident.get_absolute_url()).content.decode()

    assert page.count("$2.50 in 3 runs") == 1
    assert page.count(chain[0].cycle.get_absolute_url()) == 1


def test_the_watch_can_be_run_from_the_page(operator_client, tmp_path):
    watch = WatchFactory(name="shop", workdir=str(tmp_path))
    incident = IncidentFactory(watch=watch)
    page = operator_client.get(incident.get_absolute_url()).content.decode()
    assert "Run shop again" in page

    operator_client.post(reverse("web:run_watch", args=[watch.pk]))

    assert watch.cycles.get().trigger == "manual"


@pytest.mark.parametrize("facts", [{"state": State.RESOLVED}, {"watch": None}])
def test_a_resolved_incident_or_one_without_a_watch_offers_no_run(operator_client, facts):
    page = operator_client.get(IncidentFactory(**facts).get_absolute_url()).content.decode()

    assert "/run/" not in page


def test_the_circuit_breaker_is_shown_in_the_incident(operator_client):
    watch = WatchFactory(failures_in_a_row=4, backed_off_until=LATER)
    incident = IncidentFactory(watch=watch, kind=Kind.COULD_NOT_RUN)

    page = operator_client.get(incident.get_absolute_url()).content.decode()

    assert "It failed 4 times in a row" in page


def test_a_session_links_to_the_incidents_of_its_cycle(operator_client):
    session, incident = SessionFactory(), IncidentFactory()
    incident.cycles.add(session.cycle)

    page = operator_client.get(session.get_absolute_url()).content.decode()

    assert incident.get_absolute_url() in page


def test_an_unknown_incident_is_not_found(operator_client):
    assert operator_client.get("/incidents/99/").status_code == 404


def test_incidents_of_one_cycle_are_linked_and_a_service_is_not_looked_at(operator_client):
    before = CycleFactory()
    watch = before.watch
    web = IncidentFactory(watch=watch, cause="web", title="web is down")
    other = IncidentFactory(watch=watch, cause="db", title="db is down")
    for incident in (web, other):
        incident.events.create(kind="opened", cycle=before)
    ServiceStateFactory(watch=watch, service="web", cycle=before)
    CycleFactory(watch=watch)

    page = operator_client.get(web.get_absolute_url()).content.decode()
    card = operator_client.get("/").content.decode()

    assert f'href="{other.get_absolute_url()}"' in page
    assert "not looked at" in page
    assert "Not looked at in the last cycle: web" in card
