"""The record: what is looked after, what ran, what it said and what it cost."""

from sessions_app.models.account_clock import AccountClock
from sessions_app.models.approval import Approval
from sessions_app.models.budget_notice import BudgetNotice
from sessions_app.models.change import Change
from sessions_app.models.conversation import Conversation
from sessions_app.models.cycle import Cycle
from sessions_app.models.daily_verdict import DailyVerdict
from sessions_app.models.event import SessionEvent
from sessions_app.models.happening import Happening
from sessions_app.models.incident import Incident, IncidentEvent
from sessions_app.models.login_failure import LoginFailure
from sessions_app.models.period_cost import PeriodCost
from sessions_app.models.search_text import SearchText
from sessions_app.models.service_state import ServiceState
from sessions_app.models.session import Session
from sessions_app.models.switch import PauseSwitch, WorkerBeat
from sessions_app.models.target import Message, Target
from sessions_app.models.transcript import Transcript, TranscriptChunk
from sessions_app.models.walls_proof import WallsProof
from sessions_app.models.watch import Watch

__all__ = [
    "AccountClock",
    "Approval",
    "BudgetNotice",
    "Change",
    "Conversation",
    "Cycle",
    "PeriodCost",
    "DailyVerdict",
    "Happening",
    "Incident",
    "IncidentEvent",
    "LoginFailure",
    "Message",
    "PauseSwitch",
    "SearchText",
    "ServiceState",
    "Session",
    "SessionEvent",
    "Target",
    "Transcript",
    "TranscriptChunk",
    "WallsProof",
    "Watch",
    "WorkerBeat",
]
