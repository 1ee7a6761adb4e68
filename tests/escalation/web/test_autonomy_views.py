"""The endpoint that sets the autonomy of a watch."""

from __future__ import annotations

import pytest
from django.urls import reverse

from sessions_app.models.autonomy import AutonomyLevel
from tests.factories import WatchFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def watch():
    return WatchFactory(max_tier=1, dry_run=True, approval="3")


def set_autonomy(client, watch, **form: str) -> str:
    page = client.post(reverse("web:set_autonomy", args=[watch.pk]), form, follow=True)
    watch.refresh_from_db()
    return str(page.content.decode())


@pytest.mark.parametrize("step", AutonomyLevel)
def test_every_level_can_be_set_with_a_confirmation(operator_client, watch, step):
    said = set_autonomy(operator_client, watch, step=step.value, confirm="on")

    assert watch.autonomy_level == step
    assert f"now has autonomy {step.label}." in said


def test_without_a_confirmation_nothing_is_changed(operator_client, watch):
    said = set_autonomy(operator_client, watch, step="all")

    assert watch.autonomy_level == AutonomyLevel.LOOK
    assert "Nothing was changed: tick that" in said


@pytest.mark.parametrize("step", ["", "everything", "ALL", "../all", "all\0"])
def test_an_unknown_level_changes_nothing(operator_client, watch, step):
    set_autonomy(operator_client, watch, step=step, confirm="on")

    assert watch.autonomy_level == AutonomyLevel.LOOK
