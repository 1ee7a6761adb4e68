from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User

from escalation.worker.installation import ensure_operator
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def names(settings) -> None:
    settings.CLAUDEOPS_ADMIN_USER = "operator"
    settings.CLAUDEOPS_ADMIN_PASSWORD = ""


def test_the_first_start_creates_an_account_and_shows_its_password_once():
    said = ensure_operator()

    shown = re.fullmatch(r"operator, password (\S+) \(shown only this once\)", said)
    assert shown
    user = User.objects.get()
    assert user.is_superuser
    assert user.check_password(shown[1])
    assert len(shown[1]) >= 12


def test_the_second_start_shows_no_password():
    ensure_operator()

    assert ensure_operator() == "operator"
    assert User.objects.count() == 1


def test_a_password_from_the_environment_is_used_and_not_shown(settings):
    settings.CLAUDEOPS_ADMIN_PASSWORD = "chosen by the operator"

    said = ensure_operator()

    assert User.objects.get().check_password("chosen by the operator")
    assert "chosen" not in said


def test_a_new_password_in_the_environment_replaces_a_forgotten_one(settings):
    ensure_operator()
    settings.CLAUDEOPS_ADMIN_PASSWORD = "a new one"

    said = ensure_operator()

    assert User.objects.get().check_password("a new one")
    assert "CLAUDEOPS_ADMIN_PASSWORD" in said


def test_the_same_password_again_changes_nothing(settings):
    settings.CLAUDEOPS_ADMIN_PASSWORD = "chosen"
    ensure_operator()
    stored = User.objects.get().password

    ensure_operator()

    assert User.objects.get().password == stored


def test_with_another_superuser_no_account_is_created():
    UserFactory(username="boss", is_superuser=True)

    assert ensure_operator() == ""
    assert User.objects.count() == 1


def test_an_account_without_rights_is_not_the_operator():
    UserFactory(username="reader")

    ensure_operator()

    assert User.objects.get(username="operator").is_superuser
