"""The page of accounts: invitation by link, roles, disabling, and the last administrator."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from escalation.web.context_processors import pages_for
from sessions_app.access import accounts as engine
from sessions_app.access.accounts import SEEN_EVERY, AccountProblem, AccountRefused, role_of
from sessions_app.access.roles import TABLE, Role
from sessions_app.models import AccountSeen
from tests.factories import PASSWORD, user_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
GOOD = "four words for ada here"


def client_of(role: str) -> tuple[Client, User]:
    user, client = user_with(role), Client()
    client.force_login(user)
    return client, user


def link_in(response) -> str:
    return urlsplit(response.context["link"]).path


def choose(path: str, password: str, client: Client | None = None):
    client = client or Client()
    form = client.get(path, follow=True)
    sent = {"new_password1": password, "new_password2": password}
    return client, client.post(form.request["PATH_INFO"], sent, follow=True)


def test_an_invited_person_chooses_the_password_once_and_is_logged_in():
    admin, by = client_of("admin")
    answer = admin.post(reverse("web:invite_account"), {"name": "ada", "role": "operator"})
    path = link_in(answer)

    assert answer["Cache-Control"] == "no-store"
    ada, page = choose(path, GOOD)
    assert page.redirect_chain[-1][0] == reverse("web:overview")
    assert role_of(User.objects.get(username="ada")) == "operator"
    assert ada.get(reverse("web:approvals")).status_code == 200
    assert LogEntry.objects.filter(user=by, object_repr="ada").exists()

    _other, again = choose(path, "another four words here")
    assert b"no longer works" in again.content
    assert User.objects.get(username="ada").check_password(GOOD)


def test_a_weak_password_is_refused_and_the_link_still_works():
    path = engine.invitation(engine.add_account("ada", Role.VIEWER))

    client, answer = choose(path, "123")
    assert answer.status_code == 200
    assert not User.objects.get(username="ada").has_usable_password()
    client, answer = choose(path, GOOD, client)
    assert answer.redirect_chain


@pytest.mark.parametrize("case", ["too old", "renewed", "disabled", "forged", "of another"])
def test_a_link_that_no_longer_holds_changes_nothing(case, settings):
    account = engine.add_account("ada", Role.VIEWER)
    other = engine.add_account("eve", Role.ADMIN)
    path = engine.invitation(account)
    match case:
        case "too old":
            settings.PASSWORD_RESET_TIMEOUT = -1
        case "renewed":
            engine.invitation(account)
        case "disabled":
            engine.disable(account)
        case "forged":
            path = path[:-3] + "zz/"
        case _:
            start, _number, token, end = path.rsplit("/", 3)
            path = f"{start}/{engine.invitation(other).split('/')[2]}/{token}/{end}"

    client = Client()
    assert b"no longer works" in client.get(path, follow=True).content
    assert not User.objects.filter(last_login__isnull=False).exists()


def test_the_last_administrator_stays():
    admin, by = client_of("admin")

    for name, sent in (
        ("disable_account", {"confirm": "on"}),
        ("change_account_role", {"role": "viewer"}),
    ):
        answer = admin.post(reverse(f"web:{name}", args=[by.pk]), sent, follow=True)
        assert "last administrator" in answer.content.decode()
    by.refresh_from_db()
    assert (by.is_active, role_of(by)) == (True, "admin")

    user_with("admin")
    admin.post(reverse("web:disable_account", args=[by.pk]), {"confirm": "on"})
    by.refresh_from_db()
    assert by.is_active is False
    assert admin.get(reverse("web:accounts")).status_code == 302


def test_role_and_state_change_and_are_logged():
    admin, by = client_of("admin")
    ada = user_with("viewer", username="ada")

    admin.post(reverse("web:change_account_role", args=[ada.pk]), {"role": "approver"})
    admin.post(reverse("web:disable_account", args=[ada.pk]))  # not confirmed
    ada = User.objects.get(pk=ada.pk)
    assert (role_of(ada), ada.is_active) == ("approver", True)
    admin.post(reverse("web:disable_account", args=[ada.pk]), {"confirm": "on"})
    assert User.objects.get(pk=ada.pk).is_active is False
    answer = admin.post(reverse("web:link_account", args=[ada.pk]), follow=True)
    assert "/invited/" not in answer.content.decode()
    admin.post(reverse("web:enable_account", args=[ada.pk]))
    admin.post(reverse("web:change_account_role", args=[ada.pk]), {"role": "emperor"})
    ada = User.objects.get(pk=ada.pk)
    assert (role_of(ada), ada.is_active) == ("approver", True)
    said = set(LogEntry.objects.filter(user=by).values_list("change_message", flat=True))
    assert said == {"Role: approver.", "Disabled.", "Enabled."}


def test_a_name_that_is_taken_or_invalid_is_refused():
    admin, _by = client_of("admin")
    user_with("viewer", username="ada")

    for name in ("ada", "a b", "", "x" * 151, "<script>"):
        answer = admin.post(reverse("web:invite_account"), {"name": name, "role": "viewer"})
        assert answer.status_code == 422, name
    assert User.objects.count() == 2
    with pytest.raises(AccountRefused) as refused:
        engine.add_account("ada", Role.VIEWER)
    assert refused.value.problem == AccountProblem.EXISTS


def test_when_an_account_was_seen_is_stored_a_few_minutes_precise(monkeypatch):
    client, user = client_of("viewer")
    first = AccountSeen.objects.get(user=user).at
    client.get("/")
    assert AccountSeen.objects.get(user=user).at == first

    later = timezone.now() + SEEN_EVERY + timedelta(seconds=1)
    monkeypatch.setattr("sessions_app.access.accounts.timezone.now", lambda: later)
    client.get("/")
    assert AccountSeen.objects.get(user=user).at == later


@pytest.mark.parametrize("role", Role)
def test_every_entry_of_the_navigation_opens_for_the_role_that_is_shown_it(role):
    client, _user = client_of(role)
    shown = client.get("/").content.decode()

    entries = pages_for(TABLE[role])
    assert len(entries) >= 10
    for title, url in entries:
        answer = client.get(url)
        assert answer.status_code == 200, f"{title} for a {role}: {answer.status_code}"
    for title, url in pages_for(TABLE[Role.ADMIN]):
        if (title, url) not in entries:
            assert client.get(url).status_code == 403, f"{title} is hidden from a {role}"
            assert f'href="{url}"' not in shown


def test_a_password_chosen_by_link_is_the_one_that_logs_in():
    engine.add_account("ada", Role.VIEWER, password=PASSWORD)
    path = engine.invitation(User.objects.get(username="ada"))
    choose(path, GOOD)

    for password, is_right in ((PASSWORD, False), (GOOD, True)):
        sent = {"username": "ada", "password": password}
        assert (Client().post("/login/", sent).status_code == 302) is is_right
