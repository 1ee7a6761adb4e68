"""A start as root is reported with what to do instead."""

from __future__ import annotations

import os

import pytest
from django.urls import reverse

from escalation.checks import check_user
from escalation.worker.health import INSTEAD_OF_ROOT, RUNS_AS_ROOT


@pytest.fixture(params=[0, 1000], ids=["root", "user"])
def is_root(request, monkeypatch) -> bool:
    monkeypatch.setattr(os, "geteuid", lambda: request.param)
    return request.param == 0


def test_a_deployment_check_warns_about_root(is_root):
    found = [(message.msg, message.hint) for message in check_user()]

    assert found == ([(RUNS_AS_ROOT, INSTEAD_OF_ROOT)] if is_root else [])


def test_the_overview_warns_about_root(is_root, operator_client):
    page = operator_client.get(reverse("web:overview")).content.decode()

    assert (RUNS_AS_ROOT in page) == is_root
    assert ("User=claudeops" in page) == is_root
