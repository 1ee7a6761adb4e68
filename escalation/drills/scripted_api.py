"""A scripted Messages API on 127.0.0.1: the model's side of a drill.

`http://127.0.0.1:PORT/<scenario>/tier/<n>/run/<key>` is the base URL of one session, so one server
can serve many. The main conversation gets the tier's replies in order; any other conversation (a
subagent) gets the scenario's asides; auxiliary requests of the CLI get a short answer
without usage. Every request is kept in memory and, if a file is given, on disk.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, cast

from escalation.agent.messages_api import (
    NO_USAGE,
    MessagesHandler,
    is_auxiliary,
    opening_words,
    serve_messages,
    usage_of,
)
from escalation.drills.scenario import Reply, Scenario

RUN_PATH = re.compile(r"^/(?P<scenario>[\w-]+)/tier/(?P<tier>\d+)/run/(?P<run>[\w-]+)/")
LAST_WORD = Reply(say="There is nothing more to add.")
BESIDE_THE_SCRIPT = Reply(say="ok", usage=NO_USAGE)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptRequest:
    """A request that the API received."""

    scenario: str
    tier: int
    run: str
    main: bool
    body: dict[str, Any]

    def text(self) -> str:
        """Return all messages as one string."""
        return json.dumps(self.body.get("messages", []), ensure_ascii=False)


@dataclass(slots=True)
class RunState:
    """Position of one session in its script."""

    opening: str = ""
    """First text of the main conversation, which is the first that sends a request."""
    served: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})

    def is_main(self, opening: str) -> bool:
        self.opening = self.opening or opening
        return opening == self.opening


class ScriptedApi:
    """The server and its requests. Use `serving()` to run it."""

    def __init__(self, *scenarios: Scenario, request_log: Path | None = None) -> None:
        self.scenarios = {scenario.name: scenario for scenario in scenarios}
        self.requests: list[KeptRequest] = []
        self._request_log = request_log
        self._runs: dict[tuple[str, int, str], RunState] = {}
        self._lock = threading.Lock()
        self._port = 0

    def base_url(self, scenario: str, tier: int, run: str = "1") -> str:
        assert self._port, "the scripted API is not running"
        return f"http://127.0.0.1:{self._port}/{scenario}/tier/{tier}/run/{run}"

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[ScriptedApi]:
        with serve_messages(_ScriptedHandler, self, port) as self._port:
            yield self
        self._port = 0

    def answer(self, scenario: str, tier: int, run: str, body: dict[str, Any]) -> Reply:
        """Keep the request and choose the reply."""
        with self._lock:
            state = self._runs.setdefault((scenario, tier, run), RunState())
            auxiliary = is_auxiliary(body)
            main = not auxiliary and state.is_main(opening_words(body))
            reply = (
                BESIDE_THE_SCRIPT if auxiliary else self._next_reply(scenario, tier, state, main)
            )
            kept = KeptRequest(scenario=scenario, tier=tier, run=run, main=main, body=body)
            self._keep(kept, {} if reply.error or reply.limit else usage_of(reply, body))
        return reply

    def _next_reply(self, scenario: str, tier: int, state: RunState, main: bool) -> Reply:
        position = state.served[main]
        state.served[main] += 1
        played = self.scenarios[scenario]
        return reply_at(played.replies_for(tier) if main else played.aside, position)

    def note_served(self, tier: int, run: str, request: dict[str, Any], reply: Reply) -> None:
        """Log the usage of an answer that was sent completely."""
        usage, model = usage_of(reply, request), request.get("model")
        with self._lock:
            self._log({"tier": tier, "run": run, "model": model, "served": usage})

    def _keep(self, request: KeptRequest, offered: dict[str, int]) -> None:
        """Log a request with the usage offered, which a client that dies may not use completely."""
        self.requests.append(request)
        self._log(
            {
                "tier": request.tier,
                "run": request.run,
                "main": request.main,
                "offered": offered,
                "body": request.body,
            }
        )

    def _log(self, entry: dict[str, Any]) -> None:
        if self._request_log is not None:
            with self._request_log.open("a") as log:
                log.write(json.dumps(entry) + "\n")


def reply_at(replies: tuple[Reply, ...], position: int) -> Reply:
    for reply in replies:
        if position < reply.times:
            return reply
        position -= reply.times
    return LAST_WORD


def limit_headers(seconds: float) -> dict[str, str]:
    """Headers that the API sends with status 429, for subscriptions and for keys."""
    unified = "anthropic-ratelimit-unified"
    return {
        f"{unified}-status": "rejected",
        f"{unified}-reset": str(ceil(time.time() + seconds)),
        f"{unified}-representative-claim": "five_hour",
        "retry-after": str(ceil(seconds)),
        "x-should-retry": "false",
    }


class _ScriptedHandler(MessagesHandler):
    def answer_to(self, request: dict[str, Any]) -> None:
        api = cast(ScriptedApi, self.player)
        address = RUN_PATH.match(self.path)
        if address is None or address["scenario"] not in api.scenarios:
            return self.send_error_body(404, f"no scenario at {self.path}")
        tier, run = int(address["tier"]), address["run"]
        reply = api.answer(address["scenario"], tier, run, request)
        time.sleep(reply.delay)
        if reply.limit:
            headers = limit_headers(reply.limit)
            return self.send_error_body(429, reply.say or "used up", headers)
        if reply.error:
            return self.send_error_body(reply.error, reply.say or "scripted")
        if self.send_answer(reply, request, reply.pace):
            api.note_served(tier, run, request, reply)
        return None
