from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import Client

from tests.factories import UserFactory


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """A file, because a web server under test is another thread; one for each test process."""
    database = django_settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        file = Path(tempfile.gettempdir()) / f"claudeops-test-{os.getpid()}.sqlite3"
        database["TEST"] = {**database.get("TEST", {}), "NAME": str(file)}


@pytest.fixture(autouse=True)
def quick_passwords(settings) -> None:
    """Hashing is slow on purpose, which no test needs."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def operator(db) -> User:
    return UserFactory(username="operator", is_staff=True, is_superuser=True)


@pytest.fixture
def operator_client(operator: User) -> Client:
    """A browser in which the operator is logged in."""
    client = Client()
    client.force_login(operator)
    return client
