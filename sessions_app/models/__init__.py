"""Models of watches, cycles, sessions, incidents, alerts, approvals, notifications and costs."""

from sessions_app.models.alert import Alert, Delivery, RefusedDeliveries, Source
from sessions_app.models.approval import Approval, Change, FileContent
from sessions_app.models.conversation import Conversation, Transcript, TranscriptChunk
from sessions_app.models.costs import BudgetLimit, BudgetNotice, PeriodCost
from sessions_app.models.cycle import Cycle
from sessions_app.models.incident import Incident, IncidentEvent, ServiceState
from sessions_app.models.installation import (
    AccountSeen,
    AppliedDeclaration,
    LoginFailure,
    PauseSwitch,
    RateLimit,
    SandboxProof,
    WorkerHeartbeat,
)
from sessions_app.models.notification import Channel, Message, Notification, TelegramBot
from sessions_app.models.probe import (
    HeartbeatPing,
    Maintenance,
    Probe,
    ProbeChange,
    ProbeLease,
    ProbeProposal,
    ProbeSum,
)
from sessions_app.models.remedy import Remedy, RemedyRun
from sessions_app.models.search import RunText, SearchProgress, SearchText
from sessions_app.models.session import DailyVerdict, Session, SessionEvent
from sessions_app.models.telemetry import MetricTotal, TraceExport
from sessions_app.models.token import ApiToken, IdempotentRequest
from sessions_app.models.watch import Manifest, Watch

__all__ = [
    "AccountSeen",
    "Alert",
    "ApiToken",
    "AppliedDeclaration",
    "Approval",
    "BudgetNotice",
    "Change",
    "Channel",
    "Conversation",
    "Cycle",
    "DailyVerdict",
    "Delivery",
    "FileContent",
    "HeartbeatPing",
    "IdempotentRequest",
    "Incident",
    "IncidentEvent",
    "LoginFailure",
    "Maintenance",
    "Manifest",
    "Message",
    "MetricTotal",
    "Notification",
    "PauseSwitch",
    "BudgetLimit",
    "PeriodCost",
    "Probe",
    "ProbeChange",
    "ProbeLease",
    "ProbeProposal",
    "ProbeSum",
    "RateLimit",
    "Remedy",
    "RefusedDeliveries",
    "RemedyRun",
    "RunText",
    "SandboxProof",
    "SearchProgress",
    "SearchText",
    "ServiceState",
    "Session",
    "SessionEvent",
    "Source",
    "TraceExport",
    "Transcript",
    "TranscriptChunk",
    "TelegramBot",
    "Watch",
    "WorkerHeartbeat",
]
