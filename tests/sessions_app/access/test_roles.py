from __future__ import annotations

from importlib import import_module
from itertools import pairwise

import pytest
from django.apps import apps
from django.contrib.auth.models import AnonymousUser, Group, Permission

from sessions_app.access.roles import TABLE, Right, Role, may, rights_of
from tests.factories import UserFactory, user_with

migration = import_module("sessions_app.migrations.0007_access")
pytestmark = pytest.mark.django_db


def test_each_role_includes_the_one_before_it():
    assert all(less < more for less, more in pairwise(TABLE.values()))


def test_an_admin_has_every_right():
    assert TABLE[Role.ADMIN] == frozenset(Right)


def test_a_superuser_is_an_admin_without_a_group():
    assert rights_of(UserFactory(is_superuser=True)) == frozenset(Right)


def test_without_a_role_an_account_has_no_right():
    assert rights_of(AnonymousUser()) == rights_of(user_with("", is_staff=True)) == frozenset()


def test_an_inactive_account_has_no_right():
    assert not may(user_with("admin", is_superuser=True, is_active=False), Right.SEE)


def test_another_group_does_not_change_the_rights():
    user = user_with("viewer")
    user.groups.add(Group.objects.create(name="choir"))

    assert rights_of(user) == {Right.SEE}


def test_the_migration_names_every_role():
    assert set(migration.ROLES) == set(Role)


def test_an_upgrade_keeps_the_rights_of_an_account():
    looked, acted, through_a_group = user_with(""), user_with(""), user_with("")
    rule = Permission.objects.filter(codename__in=migration.FORMER_RULE)
    acted.user_permissions.set(rule)
    crew = Group.objects.create(name="crew")
    crew.permissions.set(rule)
    through_a_group.groups.add(crew)

    migration.give_roles(apps, None)

    assert rights_of(looked) == TABLE[Role.VIEWER]
    assert rights_of(acted) == rights_of(through_a_group) == TABLE[Role.APPROVER]


def test_an_upgrade_keeps_a_role():
    user = user_with("operator")

    migration.give_roles(apps, None)

    assert rights_of(user) == TABLE[Role.OPERATOR]
