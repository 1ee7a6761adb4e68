"""Real servers on this machine that receive messages, or fail in known ways."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from asyncio import Server
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller


class Webhook(ThreadingHTTPServer):
    """Takes what is posted, and answers with `status`; while `hangs`, it does not answer."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.requests: list[tuple[str, Message, bytes]] = []
        self.status = 200
        self.hangs = False
        self.released = threading.Event()
        super().__init__(("127.0.0.1", 0), _Hook)

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    @property
    def address(self) -> str:
        return f"json://{self.place}/"


class _Hook(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(json.loads(body))
        self.server.requests.append((self.path, self.headers, body))
        if self.server.hangs:
            self.server.released.wait(60)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""


@contextmanager
def webhook(certificate: Path | None = None) -> Iterator[Webhook]:
    server = Webhook()
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def own_certificate(directory: Path) -> Path:
    """Make a self-signed certificate."""
    both = directory / "own.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        + ["-subj", "/CN=nobody", "-keyout", str(directory / "key.pem")]
        + ["-out", str(directory / "certificate.pem")],
        check=True,
        capture_output=True,
    )
    texts = [(directory / name).read_text() for name in ("key.pem", "certificate.pem")]
    both.write_text("".join(texts))
    return both


class Mailbox:
    """A mail server's handler that keeps what it is given."""

    def __init__(self) -> None:
        self.mails: list[Any] = []
        self.port = 0

    async def handle_DATA(self, server: object, session: object, envelope: Any) -> str:
        self.mails.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 taken"


class AnyPort(Controller):
    """On a port that the system chooses."""

    def _trigger_server(self) -> None:
        """The library sees by a connection whether it runs."""
        assert isinstance(self.server, Server)
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    mailbox = Mailbox()
    controller = AnyPort(mailbox, hostname="127.0.0.1", port=0)
    controller.start()
    try:
        mailbox.port = controller.port
        yield mailbox
    finally:
        controller.stop()


class BotApi(ThreadingHTTPServer):
    """Answers as Telegram's Bot API does: updates that were not confirmed, errors as JSON."""

    daemon_threads = True
    block_on_close = False
    token = "123456789:AABBCCDDEEFFaabbccddeeff"

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.updates: list[dict[str, Any]] = []
        self.errors: dict[str, tuple[int, dict[str, Any]]] = {}
        """Answers of methods that fail."""
        self.hangs = threading.Event()
        self.released = threading.Event()
        super().__init__(("127.0.0.1", 0), _Bot)

    def address(self, chat: int | str) -> str:
        return f"tgram://{self.token}/{chat}?api={self.url}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def said(self, method: str) -> list[dict[str, Any]]:
        return [params for name, params in self.calls if name == method]

    def press(self, data: str, *, chat: int, person: int | None = None, number: int = 1) -> None:
        """Let a person press a button."""
        self.updates.append(
            {
                "update_id": 700 + number,
                "callback_query": {
                    "id": f"query-{number}",
                    "from": {"id": person or chat, "is_bot": False, "first_name": "Grace"},
                    "message": {
                        "message_id": 41,
                        "date": 1_790_000_000,
                        "chat": {"id": chat, "type": "private"},
                        "text": "shop: may it run?",
                    },
                    "chat_instance": "1",
                    "data": data,
                },
            }
        )


class _Bot(BaseHTTPRequestHandler):
    server: BotApi

    def do_POST(self) -> None:
        params = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        _, token, method = self.path.split("/")
        self.server.calls.append((method, params))
        if self.server.hangs.is_set():
            self.server.released.wait(30)
        if token != f"bot{self.server.token}":
            return self._answer(404, {"ok": False, "error_code": 404, "description": "Not Found"})
        if method in self.server.errors:
            status, error = self.server.errors[method]
            return self._answer(status, {"ok": False, "error_code": status, **error})
        result: Any = True
        if method == "getUpdates":
            since = params.get("offset", 0)
            found = [one for one in self.server.updates if one["update_id"] >= since]
            self.server.updates[:] = found
            result = found[: params.get("limit", 100)]
        if method == "sendMessage":
            result = {"message_id": 41, "chat": {"id": params["chat_id"]}}
        return self._answer(200, {"ok": True, "result": result})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""


@contextmanager
def bot_api() -> Iterator[BotApi]:
    server = BotApi()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
