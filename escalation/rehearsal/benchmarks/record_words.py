"""What the runs of a made-up record say."""

from __future__ import annotations

import json
from typing import Any

WATCHES = (
    *("shop", "blog", "mail", "backup", "registry", "metrics", "intranet", "wiki"),
    *("billing", "cameras", "library", "homelab"),
)
SERVICES = ("web", "database", "cache", "proxy", "queue", "search", "storage", "worker")
MODELS = {1: "haiku", 2: "sonnet", 3: "opus"}
REASONS = {
    "healthy": (
        "All services answer, the last backup is four hours old, disks are under 70 percent.",
        "Everything is healthy: eight containers up, no restart since yesterday.",
        "All endpoints answered within 200 ms; certificates are good for 61 days.",
    ),
    "fixed": (
        "The proxy had lost its upstream; it was restarted and answers again.",
        "The cache was full of expired sessions; it was flushed and the pages are fast again.",
    ),
    "needs_person": (
        "The database volume is 96 percent full and nothing may be deleted without a person.",
        "The certificate of the registry expires in two days and renewal fails with HTTP 403.",
    ),
    "could_not_run": ("The CLI ended with exit code 1.",),
    "escalated": (
        "Tier 1 asks for a restart of the proxy, which it may not do itself.",
        "Tier 2 could not bring the database up: the volume has to be grown.",
    ),
}
ERRORS = (
    "API Error: 529 Overloaded. The CLI ended with exit code 1.",
    "The run said nothing for 600 s and was stopped. Broken pipe while reading the stream.",
)
PROMPT = (
    "You are the first tier of an on-call team. Read CLAUDE-OPS.md, look at every service that it "
    "names, at disks, certificates, backups and logs of the last hour, and report what you found. "
    "Change nothing. Ask for escalation only where something is broken that you cannot mend. "
)
FLAGS = ("--output-format", "stream-json", "--verbose", "--strict-mcp-config", "--max-turns", "60")


def prompt(number: int) -> str:
    return f"{PROMPT * 2}This is round {number}."


def argv(model: str) -> str:
    return json.dumps(["/opt/claudeops/claude", "-p", "--model", model, *FLAGS])


def report(service: str, outcome: str) -> str:
    healthy = outcome == "healthy"
    state = "healthy" if healthy else "down"
    return json.dumps(
        {
            "summary": REASONS[outcome][0],
            "services": [
                {"name": name, "status": state if name == service else "healthy", "detail": "ok"}
                for name in SERVICES
            ],
            "needs_escalation": not healthy,
        }
    )


def words_event(sequence: int) -> dict[str, Any]:
    text = f"Looking at {SERVICES[sequence % len(SERVICES)]}: it answers."
    content = [{"type": "text", "text": text}]
    return {
        "source": "stream",
        "kind": "assistant",
        "payload": json.dumps({"type": "assistant", "message": {"content": content}}),
    }


def verdict_event(sequence: int) -> dict[str, Any]:
    verdict = ("allow", "contain", "deny")[sequence // 4 % 3]
    facts = {"command": "docker ps", "verdict": verdict, "rule": "docker ps", "doors": ["docker"]}
    return {
        "source": "supervisor",
        "kind": "gate",
        "payload": json.dumps({"text": f"docker ps: {verdict}", "level": "info", **facts}),
    }
