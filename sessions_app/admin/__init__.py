"""The record in the admin: to be searched and read, never changed."""

from sessions_app.admin import books
from sessions_app.admin.conversations import ConversationAdmin, TranscriptAdmin
from sessions_app.admin.incidents import ApprovalAdmin, IncidentAdmin, IncidentEventAdmin
from sessions_app.admin.runs import CycleAdmin, SessionAdmin, SessionEventAdmin
from sessions_app.admin.word import HappeningAdmin, MessageAdmin, TargetAdmin

__all__ = [
    "ApprovalAdmin",
    "ConversationAdmin",
    "CycleAdmin",
    "HappeningAdmin",
    "IncidentAdmin",
    "IncidentEventAdmin",
    "MessageAdmin",
    "SessionAdmin",
    "SessionEventAdmin",
    "TargetAdmin",
    "TranscriptAdmin",
    "books",
]
