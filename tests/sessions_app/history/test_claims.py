"""Claims of a report compared with the record: confirmed, only claimed, or contradicted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessions_app.history.claims import Claim, ClaimCheck, Recorded, Result, judged, outcome_of
from tests.tables import each_row

RESTART = Recorded(action="docker restart web", service="web", kind="restart")
START = Recorded(action="docker start web", service="web", kind="restart")
STOP = Recorded(action="docker stop web", kind="other")
OTHER_RESTART = Recorded(action="docker restart db", service="db", kind="restart")
CONTAINER = Recorded(action="docker restart shop-web-1", service="web", kind="restart")
UNIT = Recorded(action="systemctl restart nginx.service", service="nginx", kind="restart")
PLAYBOOK = Recorded(action="ansible-playbook redeploy.yml", service="redeploy", kind="redeploy")
COMPOSE = Recorded(action="docker compose up -d", service="*", kind="redeploy")
SCALE = Recorded(action="kubectl scale deployment/web --replicas=3", service="web", kind="restart")
PRUNE = Recorded(action="docker image prune", kind="other")
EDIT = Recorded(action="edit /srv/shop/nginx.conf", kind="edit", path="/srv/shop/nginx.conf")
SCRIPT = Recorded(action="")


def failed(one: Recorded) -> Recorded:
    return Recorded(
        action=one.action, service=one.service, kind=one.kind, result=Result.FAILED, told="exit 1"
    )


def denied(one: Recorded) -> Recorded:
    return Recorded(action=one.action, result=Result.DENIED, told="denied (tier)")


def unsure(one: Recorded) -> Recorded:
    return Recorded(action=one.action, service=one.service, kind=one.kind, result=Result.UNSURE)


def claim(text: str, *record: Recorded, service: str = "", result: str = "succeeded") -> Claim:
    return judged(text, service, result, record)


@each_row(
    ("text", "service", "one"),
    [
        ("restarted web", "web", RESTART),
        ("restarted web", "", RESTART),
        ("Restarted the container", "web", RESTART),
        ("docker restart web", "", RESTART),
        ("restarting `web`.", "Web", RESTART),
        ("restarted web", "web", CONTAINER),
        ("restarted shop-web-1", "", CONTAINER),
        ("started web again", "web", START),
        ("restarted web", "web", START),
        ("stopped web", "web", STOP),
        ("Restarted nginx", "nginx", UNIT),
        ("redeployed web with redeploy.yml", "web", PLAYBOOK),
        ("recreated web", "web", COMPOSE),
        ("scaled web to 3", "web", SCALE),
        ("corrected worker count in nginx.conf", "web", EDIT),
        ("edited /srv/shop/nginx.conf", "", EDIT),
        ("restarted web", "web", unsure(RESTART)),
    ],
)
def test_a_change_with_the_same_verb_and_name_confirms_the_claim(text, service, one):
    found = claim(text, one, service=service)

    assert (found.finding, found.evidence) == (ClaimCheck.SEEN, one)


@each_row(
    ("text", "service", "record"),
    [
        ("restarted web", "web", ()),
        ("restarted web", "web", (OTHER_RESTART,)),
        ("restarted web", "web", (STOP,)),
        ("restarted web", "web", (EDIT,)),
        ("restarted web", "web", (SCRIPT,)),
        ("stopped web", "web", (RESTART,)),
        ("edited nginx.conf", "", (RESTART,)),
        ("restarted the container", "", (RESTART,)),
        ("told the team", "web", (RESTART,)),
        ("", "", (RESTART,)),
    ],
)
def test_a_claim_without_a_matching_change_is_only_claimed(text, service, record):
    found = claim(text, *record, service=service)

    assert (found.finding, found.evidence) == (ClaimCheck.CLAIMED, None)


@each_row(
    "record",
    [
        (failed(RESTART),),
        (denied(RESTART),),
        (failed(RESTART), denied(RESTART)),
        (SCRIPT, failed(RESTART)),
        (failed(RESTART), OTHER_RESTART),
        (failed(RESTART), failed(COMPOSE)),
        (failed(RESTART), EDIT),
    ],
)
def test_a_claimed_success_that_failed_or_was_denied_is_contradicted(record):
    found = claim("restarted web", *record, service="web")

    assert found.finding is ClaimCheck.OTHERWISE
    assert found.word == "the record says otherwise"
    assert found.evidence is not None
    assert found.evidence.result in (Result.FAILED, Result.DENIED)


@each_row(
    ("record", "finding"),
    [
        ((failed(RESTART), RESTART), ClaimCheck.SEEN),
        ((RESTART, failed(RESTART)), ClaimCheck.SEEN),
        ((denied(RESTART), RESTART), ClaimCheck.SEEN),
        ((failed(RESTART), START), ClaimCheck.SEEN),
        ((failed(RESTART), unsure(RESTART)), ClaimCheck.SEEN),
        ((failed(RESTART), SCRIPT), ClaimCheck.CLAIMED),
        ((failed(RESTART), COMPOSE), ClaimCheck.CLAIMED),
        ((failed(RESTART), PLAYBOOK), ClaimCheck.CLAIMED),
        ((failed(RESTART), STOP), ClaimCheck.CLAIMED),
    ],
)
def test_a_claim_that_may_have_been_done_otherwise_is_not_contradicted(record, finding):
    assert claim("restarted web", *record, service="web").finding is finding


def test_a_claimed_failure_is_confirmed():
    found = claim("restarted web", failed(RESTART), service="web", result="failed")

    assert (found.finding, found.evidence) == (ClaimCheck.SEEN, failed(RESTART))


def test_a_skipped_action_claims_nothing():
    assert claim("restart web", failed(RESTART), result="skipped").finding is ClaimCheck.NOTHING


@each_row(
    ("command", "exit_code", "result"),
    [
        ("docker restart web", 0, Result.DONE),
        ("docker restart web", 1, Result.FAILED),
        ("docker restart web 2>&1", 1, Result.FAILED),
        ("docker restart web", None, Result.UNSURE),
        ("docker restart web && probe web", 1, Result.UNSURE),
        ("docker restart web; probe web", 7, Result.UNSURE),
        ("docker restart web | tail -1", 1, Result.UNSURE),
        ("docker restart web\nprobe web", 1, Result.UNSURE),
        ("docker restart web &", 1, Result.UNSURE),
    ],
)
def test_only_an_exit_code_of_the_command_itself_is_a_failure(command, exit_code, result):
    assert outcome_of(command, exit_code) is result


RESULTS = st.sampled_from(list(Result))
RECORDS = st.lists(
    st.builds(
        Recorded,
        action=st.sampled_from(["docker restart web", "docker stop web", "mv a b", "", "…"]),
        service=st.sampled_from(["", "web", "*"]),
        kind=st.sampled_from(["restart", "other", "edit", ""]),
        result=RESULTS,
    ),
    max_size=6,
)


@given(text=st.text(max_size=60), service=st.text(max_size=20), record=RECORDS)
def test_every_claim_has_a_result(text, service, record):
    assert claim(text, *record, service=service).finding in ClaimCheck


@given(record=RECORDS)
def test_a_later_success_ends_every_contradiction(record):
    assert claim("restarted web", *record, RESTART, service="web").finding is ClaimCheck.SEEN


@given(record=RECORDS)
def test_only_failed_or_denied_commands_contradict(record):
    found = claim("restarted web", *record, service="web")

    if found.finding is ClaimCheck.OTHERWISE:
        assert found.evidence is not None
        assert found.evidence.result in (Result.FAILED, Result.DENIED)
