from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from sessions_app.access import login
from sessions_app.access.login import KEPT, PER_ADDRESS, PER_NAME, WINDOW, Attempt
from sessions_app.models import LoginFailure
from tests.factories import PASSWORD, user_with

pytestmark = pytest.mark.django_db
WRONG = "not it"
ALLOWED = login.PER_NAME_AND_ADDRESS


def log_in(name: str = "ada", password: str = WRONG, address: str = "10.0.0.1"):
    form = {"username": name, "password": password}
    return Client(REMOTE_ADDR=address).post(reverse("login"), form)


@pytest.fixture
def ada():
    return user_with("viewer", username="ada")


def test_after_failed_logins_the_right_password_is_refused_too(ada):
    assert [log_in().status_code for _ in range(ALLOWED)] == [200] * ALLOWED

    refused = log_in(password=PASSWORD)

    assert refused.status_code == 429
    assert "Too many login attempts. Wait 15 minutes" in refused.content.decode()


def test_concurrent_attempts_are_all_counted():
    """All begin before the password of the first was looked at."""
    attempt = Attempt.of("ada", "10.0.0.1")

    assert [login.begin(attempt) for _ in range(30)] == [True] * ALLOWED + [False] * 25


def test_a_forwarded_header_does_not_change_the_address(ada):
    form = {"username": "ada", "password": WRONG}
    client = Client(REMOTE_ADDR="10.0.0.1")
    for number in range(ALLOWED):
        client.post(reverse("login"), form, headers={"x-forwarded-for": f"10.0.9.{number}"})

    assert log_in(password=PASSWORD).status_code == 429


def test_the_refusal_ends_after_its_window(ada, time_machine):
    time_machine.move_to("2026-01-01 12:00:00Z", tick=False)
    for _ in range(ALLOWED * 3):
        log_in()
    time_machine.shift(WINDOW)

    assert log_in(password=PASSWORD).status_code == 302


def test_a_clock_that_is_set_back_does_not_extend_the_refusal(ada, time_machine):
    time_machine.move_to("2036-01-01 12:00:00Z", tick=False)
    for _ in range(ALLOWED * 3):
        log_in()
    time_machine.move_to("2026-01-01 12:00:00Z", tick=False)

    assert log_in(password=PASSWORD).status_code == 302


def test_another_address_can_still_log_in(ada):
    for _ in range(ALLOWED):
        log_in()

    assert log_in(password=PASSWORD, address="10.0.0.2").status_code == 302


def test_an_address_that_tries_many_names_is_refused(ada):
    for number in range(PER_ADDRESS):
        log_in(name=f"name-{number}")

    assert log_in(password=PASSWORD).status_code == 429


def test_a_name_that_is_tried_from_everywhere_is_refused(ada):
    for number in range(PER_NAME):
        assert login.begin(Attempt.of("ada", f"10.0.1.{number}"))

    assert not login.begin(Attempt.of("ada", "10.0.2.1"))


def test_a_successful_login_clears_the_failures(ada):
    log_in()

    log_in(password=PASSWORD)

    assert not LoginFailure.objects.exists()


def test_attempts_are_in_the_log_without_the_password(ada, caplog):
    log_in(name="ada\nforged", password="hunter2-secret")

    assert "Login failed: 'ada\\nforged' from 10.0.0.1" in caplog.text
    assert "hunter2-secret" not in caplog.text


def test_old_failures_are_removed(time_machine):
    time_machine.move_to("2026-01-01 12:00:00Z", tick=False)
    login.begin(Attempt.of("ada", "10.0.0.1"))
    time_machine.shift(KEPT * 2)

    login.begin(Attempt.of("bob", "10.0.0.1"))

    assert [failure.username for failure in LoginFailure.objects.all()] == ["bob"]


@pytest.mark.parametrize("who", ["ada", "10.0.0.1", ""])
def test_a_command_unlocks(ada, who):
    for _ in range(ALLOWED):
        log_in()

    said = StringIO()
    call_command("unlock", *([who] if who else []), stdout=said)

    assert f"{ALLOWED} failed logins are forgotten." in said.getvalue()
    assert log_in(password=PASSWORD).status_code == 302


@pytest.mark.parametrize("name", ["", "x" * 100_000, "a\x00b", "\ud800"])
def test_no_user_name_causes_a_server_error(name):
    form = {"username": name.encode("utf-8", "surrogatepass"), "password": "x"}

    assert Client().post(reverse("login"), form).status_code in {200, 400}


def test_a_changed_password_ends_every_other_session(ada):
    here, there = Client(), Client()
    here.force_login(ada)
    there.force_login(ada)
    new = "staple battery horse correct"

    here.post(
        reverse("password"),
        {"old_password": PASSWORD, "new_password1": new, "new_password2": new},
    )

    assert here.get(reverse("login")).wsgi_request.user.is_authenticated
    assert there.get("/")["Location"].startswith(reverse("login"))
