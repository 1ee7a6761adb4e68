from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.escalation.notifications.post_offices import Mailbox, Webhook, mail_server, webhook


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as server:
        yield server


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with mail_server() as box:
        yield box
