"""Plays an incident in a home lab with the real CLI, as the user who runs this program.

It reads the working directory, the grants of the watch and the steps of each tier as JSON from
stdin, and prints the record as JSON. The replies of the model are scripted; sandboxes, command
policy and services are real.

    python -m tests.homelab.play_incident < incident.json
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

import django


def main() -> None:
    asked = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="claudeops-incident-", dir="/var/tmp") as state:
        os.environ["CLAUDEOPS_STATE_DIR"] = state
        os.environ["DJANGO_SETTINGS_MODULE"] = "claudeops.settings"
        django.setup()
        print(json.dumps(played(asked)), flush=True)


def played(asked: dict[str, Any]) -> dict[str, Any]:
    from django.core.management import call_command

    from escalation.drills.scenario import Scenario
    from escalation.drills.scripted_api import ScriptedApi
    from escalation.run.runner import run_to_end
    from escalation.supervisor import cycles
    from sessions_app.models import Change, Cycle, Watch

    call_command("migrate", verbosity=0)
    replies = tuple(reply for step in asked["steps"] for reply in replies_of(step))
    watch = Watch.objects.create(
        name="lab",
        workdir=asked["workdir"],
        grants=asked["grants"],
        max_tier=3,
        dry_run=False,
        approval="",
    )
    scenario = Scenario(name="incident", title="incident", tiers={1: replies})
    with ScriptedApi(scenario).serving() as api:
        os.environ["ANTHROPIC_BASE_URL"] = api.base_url("incident", 1)
        os.environ["ANTHROPIC_API_KEY"] = "not-a-key"
        cycle = run_to_end(cycles.start(watch, trigger=Cycle.Trigger.MANUAL), lambda line: None)
    sessions = cycle.sessions.order_by("pk")
    return {
        "outcome": cycle.outcome,
        "reason": cycle.outcome_reason,
        "tiers": [session.tier for session in sessions],
        "outputs": [output for session in sessions for output in outputs_of(session)],
        "changes": list(Change.objects.order_by("pk").values_list("action", "exit_code")),
    }


def replies_of(step: dict[str, Any]) -> list[Any]:
    """Return the replies of one tier: its commands, then its report."""
    from escalation.drills.scenario import Reply, ScriptedToolCall

    report = {
        "summary": f"{step['service']} is {step['status']}.",
        "services": [{"name": step["service"], "status": step["status"]}],
        "events": [],
        "actions_taken": [
            {"action": command, "service": step["service"], "result": "succeeded"}
            for command in step.get("did", ())
        ],
        "escalation": {
            "needed": bool(step.get("escalate")),
            "reason": step.get("escalate", ""),
            "services": [step["service"]],
        },
    }
    calls = [
        ScriptedToolCall(tool="Bash", input={"command": command, "description": "Look or act"})
        for command in step["commands"]
    ]
    end = ScriptedToolCall(tool="StructuredOutput", input=report)
    return [
        *(Reply(say="I go on.", calls=(call,)) for call in calls),
        Reply(say="That is all.", calls=(end,)),
    ]


def outputs_of(session: Any) -> list[str]:
    return [
        str(block["content"])
        for event in session.events.filter(kind="user").order_by("sequence")
        for block in event.payload["message"]["content"]
        if isinstance(block, dict) and block.get("type") == "tool_result"
    ]


if __name__ == "__main__":
    main()
