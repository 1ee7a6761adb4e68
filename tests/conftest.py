from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.factories import UserFactory


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
