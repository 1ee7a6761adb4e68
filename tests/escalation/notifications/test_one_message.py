"""Exactly one: with real processes that pass on, send and tell at the same moment."""

from __future__ import annotations

from tests.escalation.contenders import CONTENDERS

SETUP = """
from escalation.word import courier, digests, outbox, sending, silence
from escalation.word.courier import Answer
from escalation.word.happenings import tell
from sessions_app.reading.target_addresses import sealed_address
from django.utils import timezone
from datetime import timedelta
Happening.objects.all().delete(); Target.objects.all().delete(); WorkerBeat.objects.all().delete()
target = Target.objects.create(name="hook", sealed_address=sealed_address("json://127.0.0.1/"))
log = f"{os.environ['CLAUDEOPS_STATE_DIR']}/carried"
open(log, "w").close()
def deliver(address, **word):
    with open(log, "a") as file:
        file.write(word["title"] + chr(10))
    time.sleep(0.05)
    return Answer(True, "")
courier.deliver = deliver
"""


def test_what_happened_is_passed_on_once(contest):
    answers, seen = contest.race(
        setup=SETUP + "for n in range(3): tell('budget', f'word {n}')",
        attempt="answer = outbox.pass_on()",
        look="seen = Message.objects.count()",
    )

    assert sum(answers) == seen == 3


def test_a_storm_is_one_summary_whoever_passes_it_on(contest):
    answers, seen = contest.race(
        setup=SETUP + "for n in range(400): tell('budget', f'word {n}')",
        attempt="answer = outbox.pass_on()",
        look="seen = [Message.objects.filter(is_summary=s).count() for s in (False, True)]",
    )

    assert seen == [5, 1]


def test_a_message_is_sent_once(contest):
    answers, seen = contest.race(
        setup=SETUP + "for n in range(6): tell('budget', f'word {n}')\noutbox.pass_on()\n"
        "Message.objects.update(due_at=timezone.now())",
        attempt="answer = sending.send_due(target.pk)",
        look="seen = [open(log).read().split(chr(10))[:-1], "
        "list(Message.objects.values_list('state', 'tries'))]",
    )

    carried, rows = seen
    assert sum(answers) == len(carried) == len(set(carried)) == 6
    assert rows == [["sent", 1]] * 6


def test_a_silence_is_told_once(contest):
    answers, seen = contest.race(
        setup=SETUP + "long_ago = timezone.now() - timedelta(hours=1)\n"
        "WorkerBeat.objects.create(host='lab', pid=1, seen_at=long_ago)",
        attempt="answer = silence.tell_of_silent_workers()",
        look="seen = Happening.objects.count()",
    )

    assert sum(answers) == seen == 1
    assert len(answers) == CONTENDERS


def test_a_digest_is_written_once(contest):
    answers, seen = contest.race(
        setup=SETUP + "Target.objects.update(digest_at='00:00', digest_when_quiet=True, "
        "created_at=timezone.now() - timedelta(days=2))",
        attempt="answer = digests.write_due()",
        look="seen = Message.objects.count()",
    )

    assert sum(answers) == seen == 1
