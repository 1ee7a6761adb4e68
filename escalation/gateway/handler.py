"""One connection of the CLI to the gateway: who asks, for what, and the answer as it comes."""

from __future__ import annotations

import json
import logging
import re
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from escalation.agent import Tokens, error_body
from escalation.gateway.connections import FAULTS, Exchange, Pieces
from escalation.gateway.limits import limits_in
from escalation.gateway.spending import MAX_MODEL_LENGTH, Usage
from escalation.gateway.usage import Meter

logger = logging.getLogger(__name__)
MESSAGES, COUNT_TOKENS = "/v1/messages", "/v1/messages/count_tokens"
MAX_REQUEST_BYTES = 64 * 1024 * 1024
HOP_BY_HOP = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade"),
}
OURS = {"host", "content-length", "accept-encoding", "expect", "authorization", "x-api-key"}
OPENING_MODEL = re.compile(rb'\s*\{\s*"model"\s*:\s*"([\w.:@/\[\]-]{1,200})"\s*[,}]')


class Refusal(NamedTuple):
    status: int
    words: str


class GatewayHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def gateway(self) -> Any:
        return self.server.gateway  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: stderr belongs to the program, and a request line may hold anything."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no HTTP gets the API's form of an error too."""
        self.close_connection = True
        if getattr(self, "request_version", "HTTP/0.9") != "HTTP/0.9":
            self._refuse(Refusal(code, message or "This request cannot be read."))

    def do_HEAD(self) -> None:
        """The CLI asks whether anybody is there."""
        known = self.path.partition("?")[0] == "/"
        self._send_head(200 if known else 404, [("content-length", "0")])

    def do_GET(self) -> None:
        self._refuse(Refusal(404, "This gateway passes messages only."))

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET

    def do_POST(self) -> None:
        refusal = self._objection_to_head()
        length = self._length()
        if refusal is not None or length is None:
            self._discard(length)
            return self._refuse(refusal or Refusal(411, "A request needs a Content-Length."))
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return None
        models = _models_in(body)
        if models is None:
            return self._refuse(Refusal(400, "The request is no JSON object that names a model."))
        if objection := next(filter(None, map(self.gateway.objection_to, models)), ""):
            logger.warning("A request to the API was refused: %s", objection)
            return self._refuse(Refusal(403, objection))
        return self._exchange(models[0], body)

    def _objection_to_head(self) -> Refusal | None:
        if self.request_version != "HTTP/1.1":
            return Refusal(505, "This gateway speaks HTTP/1.1.")
        bearer = self.headers.get("authorization", "").partition(" ")
        by_bearer = bearer[2].strip() if bearer[0].lower() == "bearer" else None
        if not self.gateway.is_ours(by_bearer, self.headers.get("x-api-key")):
            return Refusal(401, "This token does not open the gateway of this run.")
        if self.path.partition("?")[0] not in (MESSAGES, COUNT_TOKENS):
            return Refusal(404, "This gateway passes messages only.")
        if not self.path.isascii():
            return Refusal(400, "The address cannot be read.")
        if any("\r" in value or "\n" in value for value in self.headers.values()):
            return Refusal(400, "A header goes over several lines.")
        return None

    def _length(self) -> int | None:
        """None where it cannot be told how long the request is, or it is too long."""
        stated = self.headers.get_all("content-length", [])
        if self.headers.get("transfer-encoding") or len(stated) != 1:
            return None
        text = stated[0].strip()
        if not (text.isascii() and text.isdigit() and len(text) < 12):
            return None
        return int(text) if int(text) <= MAX_REQUEST_BYTES else None

    def _discard(self, length: int | None) -> None:
        """A client that still sends would not read the answer."""
        if length is None:
            self.close_connection = True
            return
        while length > 0 and (piece := self.rfile.read(min(length, 64 * 1024))):
            length -= len(piece)

    def _exchange(self, model: str, body: bytes) -> None:
        exchange = Exchange(self.gateway.connections)
        try:
            with self.server.watch.calling(exchange.cut, self.connection):  # type: ignore[attr-defined]
                self._pass_on(exchange, model, body)
        finally:
            exchange.close()

    def _pass_on(self, exchange: Exchange, model: str, body: bytes) -> None:
        try:
            answer = exchange.ask(self.path, self._headers_upstream(), body)
        except FAULTS as problem:
            if exchange.is_cut:
                return self._note_unseen(model)
            return self._refuse(Refusal(502, f"The API cannot be reached: {_words(problem)}."))
        headers = answer.getheaders()
        self.gateway.limits = limits_in(answer.status, headers) or self.gateway.limits
        if answer.status in (301, 302, 303, 307, 308):
            return self._refuse(
                Refusal(502, "The API's address only leads to another: mend ANTHROPIC_BASE_URL.")
            )
        pieces = exchange.pieces(answer)
        if self._is_charged and answer.status == 200:
            pieces = self._counted(pieces, model, answer)
        self._stream(answer, headers, pieces)

    @property
    def _is_charged(self) -> bool:
        return self.path.partition("?")[0] == MESSAGES

    def _note_unseen(self, model: str) -> None:
        """The client left before a word came; what was read for it may be charged all the same."""
        self.close_connection = True
        if self._is_charged:
            ledger = self.gateway.ledger
            ledger.note(ledger.new_name(), Usage(model=model, tokens=Tokens(), complete=False))

    def _headers_upstream(self) -> dict[str, str]:
        """Without what belongs to this connection; unpacked, because the usage is read."""
        left_out = HOP_BY_HOP | OURS | _named_in(self.headers.get("connection", ""))
        passed = {
            name.lower(): ", ".join(self.headers.get_all(name, []))
            for name in self.headers
            if name.lower() not in left_out
        }
        return {**passed, "accept-encoding": "identity"}

    def _counted(self, pieces: Pieces, model: str, answer: HTTPResponse) -> Pieces:
        """What a piece shows is written down before the piece goes on."""
        ledger = self.gateway.ledger
        name = ledger.new_name()
        meter = Meter(
            model=model,
            content_type=answer.getheader("content-type", ""),
            encoding=answer.getheader("content-encoding", ""),
        )
        noted = None
        try:
            for piece in pieces:
                meter.feed(piece)
                if answer.length == 0:
                    meter.end()
                if (usage := meter.usage) != noted:
                    ledger.note(name, usage)
                    noted = usage
                yield piece
            meter.end()
        finally:
            if meter.usage != noted:
                ledger.note(name, meter.usage)

    def _stream(
        self,
        answer: HTTPResponse,
        headers: list[tuple[str, str]],
        pieces: Pieces,
    ) -> None:
        left_out = HOP_BY_HOP | _named_in(answer.getheader("connection", ""))
        passed = [(name, value) for name, value in headers if name.lower() not in left_out]
        chunked = answer.length is None
        try:
            self._send_head(
                answer.status,
                [*passed, *([("transfer-encoding", "chunked")] if chunked else [])],
                answer.reason,
            )
            for piece in pieces:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if chunked:
                self.wfile.write(b"0\r\n\r\n")
        except FAULTS as problem:
            # Whichever side broke: the other must not take it for an end.
            logger.info("An answer of the API was cut off: %s", _words(problem))
            self.close_connection = True
        finally:
            pieces.close()

    def _refuse(self, refusal: Refusal) -> None:
        """In the API's own form. What we refuse ourselves is not to be tried again."""
        content = json.dumps(error_body(refusal.status, refusal.words)).encode()
        retried = refusal.status >= 500
        self._send_head(
            refusal.status,
            [
                ("content-type", "application/json"),
                ("content-length", str(len(content))),
                *([] if retried else [("x-should-retry", "false")]),
            ],
        )
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_head(
        self, status: int, headers: list[tuple[str, str]], reason: str | None = None
    ) -> None:
        self.send_response_only(status, reason)
        for name, value in headers:
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()


def _models_in(body: bytes) -> list[str] | None:
    """The request's own first, then those that its tools name: some run at the API and ask one. As
    a rule it stands at the front and nowhere else; then the long rest need not be parsed."""
    named_once = body.count(b'"model"') == 1 and b"\\u00" not in body
    if named_once and (opening := OPENING_MODEL.match(body)):
        return [opening[1].decode()]
    try:
        request = json.loads(body, object_pairs_hook=_unambiguous)
    except (ValueError, RecursionError):
        return None
    if not isinstance(request, dict):
        return None
    tools = request.get("tools")
    named = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    models = [request.get("model"), *(tool["model"] for tool in named if "model" in tool)]
    found = [model for model in models if isinstance(model, str)]
    is_clear = len(found) == len(models) and all(len(name) <= MAX_MODEL_LENGTH for name in found)
    return found if is_clear else None


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two readers of a name that stands twice may read different values."""
    named = dict(pairs)
    if len(named) != len(pairs) and sum(name == "model" for name, _value in pairs) > 1:
        raise ValueError("a model is named twice")
    return named


def _named_in(connection: str) -> set[str]:
    return {name.strip().lower() for name in connection.split(",")}


def _words(problem: BaseException) -> str:
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return str(problem) or type(problem).__name__
