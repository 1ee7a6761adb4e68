"""Which host may run which session: what the watch is bound to, against the labels of the hosts.

A task for a bound session lies in a queue that is named after its words, and the broker of a host
looks only into the queues that name one of its labels. A host's own name is a label.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Q
from django_q.conf import Conf

from sessions_app.models import Session, WorkerBeat
from sessions_app.models.host_words import may_run, read_host_words


@dataclass(frozen=True, slots=True)
class LiveHost:
    labels: frozenset[str]
    free_workers: int


def own_labels() -> frozenset[str]:
    labels = read_host_words(settings.CLAUDEOPS_HOST_LABELS)
    return frozenset({socket.gethostname().lower(), *labels})


def words_of(session: Session) -> tuple[str, ...]:
    """As the watch says now, so that a corrected watch frees what waits. A drill runs anywhere."""
    watch = session.cycle.watch
    return read_host_words(watch.hosts) if watch else ()


def not_for_this_host(session: Session) -> str:
    """Why the session must run elsewhere, or nothing."""
    words, labels = words_of(session), own_labels()
    if may_run(words, labels):
        return ""
    return (
        f"the watch {session.cycle.watch} runs on {' or '.join(words)} alone, and this host is "
        f"{', '.join(sorted(labels))} (CLAUDEOPS_HOST_LABELS)"
    )


def queue_of(words: Iterable[str]) -> str:
    """The name of the queue; each word stands between commas, so that it can be looked for."""
    bound = ",".join(words)
    return f"{Conf.CLUSTER_NAME}:,{bound}," if bound else str(Conf.CLUSTER_NAME)


def queues_of_this_host(everybodys: str) -> Q:
    """The tasks that this host may take: everybody's, and those bound to one of its labels."""
    ours = Q(key=everybodys)
    for label in own_labels():
        ours |= Q(key__startswith=f"{everybodys}:", key__contains=f",{label},")
    return ours


def live_hosts() -> list[LiveHost]:
    busy = Counter(
        Session.objects.filter(status=Session.Status.RUNNING).values_list("host", flat=True)
    )
    return [
        LiveHost(
            frozenset({beat.host.lower(), *beat.labels.split()}),
            max(0, beat.workers - busy[beat.host]),
        )
        for beat in WorkerBeat.lately_seen()
    ]


def has_free_host(words: Iterable[str], hosts: Iterable[LiveHost]) -> bool:
    """Whether somebody will take it at once: else it keeps no place from the others."""
    wanted = tuple(words)
    return any(host.free_workers and may_run(wanted, host.labels) for host in hosts)


def homeless(words: Iterable[str], hosts: Iterable[LiveHost]) -> bool:
    """No live host has one of the labels: nothing will start it until one comes up."""
    wanted = tuple(words)
    return not any(may_run(wanted, host.labels) for host in hosts)
