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


def test_an_admin_may_everything():
    assert TABLE[Role.ADMIN] == frozenset(Right)


def test_a_superuser_is_an_admin_without_a_group():
    assert rights_of(UserFactory(is_superuser=True)) == frozenset(Right)


def test_nobody_else_may_anything_without_a_role():
    assert rights_of(AnonymousUser()) == rights_of(user_with("", is_staff=True)) == frozenset()


def test_an_account_that_was_switched_off_may_nothing():
    assert not may(user_with("admin", is_superuser=True, is_active=False), Right.SEE)


def test_another_group_gives_nothing_and_takes_nothing():
    user = user_with("viewer")
    user.groups.add(Group.objects.create(name="choir"))

    assert rights_of(user) == {Right.SEE}


def test_the_migration_names_every_role():
    assert set(migration.ROLES) == set(Role)


def test_an_upgrade_keeps_what_an_account_could_do():
    looked, acted, through_a_group = user_with(""), user_with(""), user_with("")
    rule = Permission.objects.filter(codename__in=migration.FORMER_RULE)
    acted.user_permissions.set(rule)
    crew = Group.objects.create(name="crew")
    crew.permissions.set(rule)
    through_a_group.groups.add(crew)

    migration.give_roles(apps, None)

    assert rights_of(looked) == TABLE[Role.VIEWER]
    assert rights_of(acted) == rights_of(through_a_group) == TABLE[Role.APPROVER]


def test_an_upgrade_leaves_a_role_as_it_is():
    user = user_with("operator")

    migration.give_roles(apps, None)

    assert rights_of(user) == TABLE[Role.OPERATOR]
