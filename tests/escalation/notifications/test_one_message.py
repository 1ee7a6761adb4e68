"""Tests of routing and sending by concurrent processes."""

from __future__ import annotations

from tests.escalation.contenders import CONTENDERS

SETUP = """
from escalation.notifications import digest, outbox, sending
from escalation.worker import notifier
from escalation.notifications.sending import DeliveryResult
from escalation.notifications.outbox import notify
from sessions_app.redaction.encryption import (encrypt_address)
from django.utils import timezone
from datetime import timedelta
Notification.objects.all().delete(); Channel.objects.all().delete()
WorkerHeartbeat.objects.all().delete()
channel = Channel.objects.create(name="hook", encrypted_address=encrypt_address("json://127.0.0.1/"))
log = f"{os.environ['CLAUDEOPS_STATE_DIR']}/carried"
open(log, "w").close()
def deliver(address, **word):
    with open(log, "a") as file:
        file.write(word["title"] + chr(10))
    time.sleep(0.05)
    return DeliveryResult(True, "")
sending.deliver = deliver
"""


def test_concurrent_workers_route_a_notification_once(contest):
    answers, seen = contest.race(
        setup=SETUP + "for n in range(3): notify('budget', f'word {n}')",
        attempt="answer = outbox.pass_on()",
        look="seen = Message.objects.count()",
    )

    assert sum(answers) == seen == 3


def test_concurrent_workers_write_one_summary_of_a_burst(contest):
    answers, seen = contest.race(
        setup=SETUP + "for n in range(400): notify('budget', f'word {n}')",
        attempt="answer = outbox.pass_on()",
        look="seen = [Message.objects.filter(is_summary=s).count() for s in (False, True)]",
    )

    assert seen == [5, 1]


def test_concurrent_workers_send_a_message_once(contest):
    answers, seen = contest.race(
        setup=SETUP + "for n in range(6): notify('budget', f'word {n}')\noutbox.pass_on()\n"
        "Message.objects.update(due_at=timezone.now())",
        attempt="answer = sending.send_due(channel.pk)",
        look="seen = [open(log).read().split(chr(10))[:-1], "
        "list(Message.objects.values_list('state', 'tries'))]",
    )

    carried, rows = seen
    assert sum(answers) == len(carried) == len(set(carried)) == 6
    assert rows == [["sent", 1]] * 6


def test_concurrent_workers_report_a_silent_worker_once(contest):
    answers, seen = contest.race(
        setup=SETUP + "long_ago = timezone.now() - timedelta(hours=1)\n"
        "WorkerHeartbeat.objects.create(host='lab', pid=1, seen_at=long_ago)",
        attempt="answer = notifier.tell_of_silent_workers()",
        look="seen = Notification.objects.count()",
    )

    assert sum(answers) == seen == 1
    assert len(answers) == CONTENDERS


def test_concurrent_workers_write_a_digest_once(contest):
    answers, seen = contest.race(
        setup=SETUP + "Channel.objects.update(digest_at='00:00', digest_when_quiet=True, "
        "created_at=timezone.now() - timedelta(days=2))",
        attempt="answer = digest.write_due()",
        look="seen = Message.objects.count()",
    )

    assert sum(answers) == seen == 1
