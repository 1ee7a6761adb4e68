"""Matches sessions to hosts: the hosts of a watch against the labels of each host.

The task of a bound session is in a queue that is named after the labels of its watch. The broker of
a host reads only queues that name one of its labels; the name of the host is one of them.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Q
from django_q.conf import Conf

from sessions_app.models import Session, WorkerHeartbeat
from sessions_app.models.watch import may_run, read_host_words


@dataclass(frozen=True, slots=True)
class LiveHost:
    labels: frozenset[str]
    free_workers: int


def own_labels() -> frozenset[str]:
    labels = read_host_words(settings.CLAUDEOPS_HOST_LABELS)
    return frozenset({socket.gethostname().lower(), *labels})


def labels_of(session: Session) -> tuple[str, ...]:
    """Returns the labels that the watch requires now. A drill runs anywhere."""
    watch = session.cycle.watch
    return read_host_words(watch.hosts) if watch else ()


def not_for_this_host(session: Session) -> str:
    """Returns why the session may not run on this host, or nothing."""
    wanted, labels = labels_of(session), own_labels()
    if may_run(wanted, labels):
        return ""
    return (
        f"the watch {session.cycle.watch} runs only on {' or '.join(wanted)}, and this host is "
        f"{', '.join(sorted(labels))} (CLAUDEOPS_HOST_LABELS)"
    )


def queue_of(labels: Iterable[str]) -> str:
    """Returns the name of the queue. Commas around each label make it searchable."""
    bound = ",".join(labels)
    return f"{Conf.CLUSTER_NAME}:,{bound}," if bound else str(Conf.CLUSTER_NAME)


def queues_of_this_host(shared: str) -> Q:
    """Selects the tasks that this host may take: unbound ones, and those bound to its labels."""
    ours = Q(key=shared)
    for label in own_labels():
        ours |= Q(key__startswith=f"{shared}:", key__contains=f",{label},")
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
        for beat in WorkerHeartbeat.lately_seen()
    ]


def has_free_host(labels: Iterable[str], hosts: Iterable[LiveHost]) -> bool:
    """Returns True if a live host with a matching label has a free worker."""
    wanted = tuple(labels)
    return any(host.free_workers and may_run(wanted, host.labels) for host in hosts)


def unschedulable(labels: Iterable[str], hosts: Iterable[LiveHost]) -> bool:
    """Returns True if no live host has one of the labels."""
    wanted = tuple(labels)
    return not any(may_run(wanted, host.labels) for host in hosts)
