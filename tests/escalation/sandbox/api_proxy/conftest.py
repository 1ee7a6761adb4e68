from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from escalation.sandbox.api_proxy import ApiProxy, Serving
from tests.escalation.sandbox.api_proxy.played_api import PlayedApi, Script, played_api, upstream_at


@dataclass
class Run:
    """An API proxy that serves, with its client and its upstream."""

    api_proxy: ApiProxy
    serving: Serving
    api: PlayedApi
    ledger: Path
    stack: ExitStack
    end: Callable[[], None]

    @property
    def address(self) -> str:
        return self.serving.base_url.removeprefix("http://")

    def connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.address, timeout=20)
        self.stack.callback(connection.close)
        return connection

    def ask(
        self,
        body: bytes | dict[str, Any] | None = None,
        *,
        path: str = "/v1/messages?beta=true",
        method: str = "POST",
        connection: http.client.HTTPConnection | None = None,
        **headers: str,
    ) -> http.client.HTTPResponse:
        """A request as the CLI sends it."""
        body = {"model": "claude-haiku-4-5", "stream": True} if body is None else body
        sent = json.dumps(body).encode() if isinstance(body, dict) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = connection or self.connect()
        connection.request(method, path, sent, {"x-api-key": self.serving.token, **named})
        answer = connection.getresponse()
        self.stack.callback(answer.close)
        return answer


@pytest.fixture
def run_with(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    with ExitStack() as stack:

        def start(
            script: Script,
            *,
            models=("haiku",),
            tools=(),
            objection=lambda _spending: "",
            **changes,
        ):
            api = stack.enter_context(played_api(script))
            ledger = tmp_path / "usage.jsonl"
            api_proxy = ApiProxy(
                upstream_at(api.port, **changes),
                models=models,
                tools=tools,
                objection=objection,
                ledger=ledger,
            )
            own = stack.enter_context(ExitStack())
            serving = own.enter_context(api_proxy.serving())
            return Run(api_proxy, serving, api, ledger, stack, own.close)

        yield start
