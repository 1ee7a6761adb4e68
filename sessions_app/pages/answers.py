"""Questions that people asked about a chain, each with its whole answer, rendered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.safestring import SafeString

from sessions_app.models import Session
from sessions_app.reading.masking import masked
from sessions_app.reading.safe_markdown import rendered


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    session: Session
    html: SafeString

    @property
    def is_given(self) -> bool:
        return bool(self.html)


def answers_in(sessions: Iterable[Session]) -> tuple[Answer, ...]:
    asked = sorted((s for s in sessions if s.is_question), key=lambda session: session.pk)
    return tuple(map(answer_of, asked))


def answer_of(session: Session) -> Answer:
    return Answer(session=session, html=rendered(masked(session.result)))
