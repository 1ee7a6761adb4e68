"""The attacks as data: what each of them is, and what none of them may do to a host."""

from __future__ import annotations

import re

from escalation.sandbox.proof.attacks import ATTACKS
from escalation.sandbox.proof.trial import PROMPT
from tests.tables import each_row

KNOWN_WORDS = {
    *("state", "code", "work", "outside", "home", "other", "config", "run", "session", "project"),
    *("supervisor", "bystander", "bystander-name", "engine", "abstract", "web", "pages"),
    *("proxy", "python", "interpreter", "token", "nap"),
}


def texts_of(attack) -> list[str]:
    inputs = [call.input for call in (*attack.calls, *attack.then)]
    return [str(value) for given in inputs for value in given.values()] + [attack.prompt]


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own():
    names = [attack.name for attack in ATTACKS]

    assert len(ATTACKS) >= 70
    assert len(set(names)) == len(names)


@each_row("attack", ATTACKS, ids=lambda attack: attack.name)
def test_every_placeholder_of_an_attack_is_known(attack):
    used = {word for text in texts_of(attack) for word in re.findall(r"@([a-z-]+)@", text)}

    assert used <= KNOWN_WORDS
    assert attack.calls or attack.prompt not in {"", PROMPT}


@each_row("attack", ATTACKS, ids=lambda attack: attack.name)
def test_no_attack_uses_processes_of_others(attack):
    """It runs on the real host, and the sandbox may have a hole."""
    text = "\n".join(texts_of(attack))

    assert not re.search(r"/proc/(\[0-9\]\*|\*)/(environ|fd|mem|maps)", text)
    assert not re.search(r"\b(kill|pkill|killall)\b[^\n]* -1\b", text)
    ruinous = re.findall(r"^.*\b(?:reboot|shutdown|poweroff|mkfs|umount -l)\b.*$", text, re.M)
    assert [line for line in ruinous if "lighthouse" not in line] == []
