from __future__ import annotations

import pytest
from django.contrib.messages import get_messages
from django.urls import reverse

from sessions_app.models import Watch
from sessions_app.models.autonomy import AutonomyLevel
from tests.factories import WatchFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]


@pytest.fixture
def url() -> str:
    return reverse("web:first_watch")


def test_the_first_watch_is_paused_and_dry_with_tier_1_only(
    operator_client, url, workdir, settings
):
    settings.CLAUDEOPS_MAX_TIER, settings.CLAUDEOPS_DRY_RUN = 3, False
    said = {"name": "shop", "workdir": str(workdir), "instructions": "Port 8080 must answer."}

    response = operator_client.post(url, said)

    watch = Watch.objects.get()
    assert response.url == reverse("web:start")
    assert (watch.name, watch.workdir, watch.instructions) == tuple(said.values())
    assert (watch.enabled, watch.dry_run, watch.max_tier) == (False, True, 1)
    assert watch.autonomy_level == AutonomyLevel.LOOK
    assert [str(one) for one in get_messages(response.wsgi_request)] == [
        "The watch shop is made. It is off, and it will change nothing."
    ]


def test_fields_that_the_guide_does_not_have_are_ignored(operator_client, url, workdir):
    more = {"enabled": "on", "max_tier": "3", "dry_run": "", "grants": "ssh"}

    operator_client.post(url, {"name": "shop", "workdir": str(workdir), **more})

    watch = Watch.objects.get()
    assert (watch.enabled, watch.dry_run, watch.max_tier, watch.grants) == (False, True, 1, "")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"name": "x", "workdir": "/nowhere/at/all"}, "There is no directory /nowhere/at/all."),
        ({"name": "x", "workdir": "relative"}, "must be absolute"),
        ({"name": "x", "workdir": "/"}, "is the whole file system"),
        ({"name": "", "workdir": "/srv"}, "This field is required."),
        ({"name": "taken", "workdir": "/srv"}, "already exists"),
    ],
)
def test_an_invalid_form_is_shown_again_with_its_input(operator_client, url, said, told):
    WatchFactory(name="taken")

    page = operator_client.post(url, {**said, "instructions": "Look at it."}).content.decode()

    assert told in page
    assert "Look at it." in page
    assert Watch.objects.count() == 1
