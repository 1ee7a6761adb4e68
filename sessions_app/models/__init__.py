"""The record: what is looked after, what ran, what it said and what it cost."""

from sessions_app.models.conversation import Conversation
from sessions_app.models.cycle import Cycle
from sessions_app.models.event import SessionEvent
from sessions_app.models.session import Session
from sessions_app.models.switch import PauseSwitch, WorkerBeat
from sessions_app.models.transcript import Transcript, TranscriptChunk
from sessions_app.models.watch import Watch

__all__ = [
    "Conversation",
    "Cycle",
    "PauseSwitch",
    "Session",
    "SessionEvent",
    "Transcript",
    "TranscriptChunk",
    "Watch",
    "WorkerBeat",
]
