from __future__ import annotations

import http.client
import json
import logging
import threading

import pytest

from escalation.agent.stream import Tokens
from escalation.sandbox.api_proxy import ApiProxy, read_ledger
from tests.escalation.sandbox.api_proxy.played_api import (
    CHUNKED,
    KEY,
    LAST_CHUNK,
    STREAM,
    answer_error,
    answer_json,
    answer_well,
    chunk,
    head,
    message_start,
    upstream_at,
)

USED = Tokens(input=11, output=22, cache_read=33, cache_creation=44)


def error_in(answer) -> tuple[str, str]:
    error = json.loads(answer.read())["error"]
    return error["type"], error["message"]


def test_a_stream_goes_through_as_it_is(run_with):
    run = run_with(answer_well)

    answer = run.ask()

    assert (answer.status, answer.getheader("content-type")) == (200, "text/event-stream")
    assert answer.read() == b"".join(STREAM)


def test_every_piece_goes_on_before_the_next_is_there(run_with):
    pieces_read = [threading.Event() for _piece in STREAM]

    def drip(connection, _api):
        connection.sendall(head(200, CHUNKED))
        for piece, read in zip(STREAM, pieces_read, strict=True):
            connection.sendall(chunk(piece))
            assert read.wait(10)
        connection.sendall(LAST_CHUNK)

    answer = run_with(drip).ask()

    for piece, read in zip(STREAM, pieces_read, strict=True):
        assert answer.read1() == piece
        read.set()
    assert answer.read() == b""


def test_the_head_goes_on_before_the_first_piece(run_with):
    head_read = threading.Event()

    def think(connection, _api):
        connection.sendall(head(200, CHUNKED))
        assert head_read.wait(10)
        connection.sendall(chunk(STREAM[0]) + LAST_CHUNK)

    answer = run_with(think).ask()
    head_read.set()

    assert answer.read() == STREAM[0]


def test_the_key_takes_the_place_of_the_token(run_with):
    run = run_with(answer_json)

    run.ask(anthropic_version="2023-06-01").read()

    [request] = run.api.requests
    assert request.line == "POST /v1/messages?beta=true HTTP/1.1"
    assert request.headers["x-api-key"] == KEY
    assert run.serving.token not in str(request)
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert request.headers["accept-encoding"] == "identity"


def test_only_headers_and_betas_of_the_cli_are_passed_on(run_with):
    run = run_with(answer_json)

    run.ask(
        anthropic_beta="claude-code-20250219, files-api-2025-04-14,effort-2025-11-24",
        content_type="application/json; charset=utf-16",
        x_app="cli",
        x_forwarded_for="10.0.0.1",
        anthropic_workspace_id="other",
    ).read()

    [request] = run.api.requests
    assert request.headers["anthropic-beta"] == "claude-code-20250219,effort-2025-11-24"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-app"] == "cli"
    assert not {"x-forwarded-for", "anthropic-workspace-id"} & set(request.headers)


def test_a_subscriptions_token_is_put_on_as_a_bearer(run_with):
    run = run_with(
        answer_json,
        variable="CLAUDE_CODE_OAUTH_TOKEN",
        headers={"authorization": f"Bearer {KEY}"},
    )

    run.ask(x_api_key="", authorization=f"Bearer {run.serving.token}").read()

    [request] = run.api.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert "x-api-key" not in request.headers
    assert run.serving.environment["CLAUDE_CODE_OAUTH_TOKEN"] == run.serving.token


def test_what_belongs_to_one_connection_is_not_passed_on(run_with):
    run = run_with(answer_json)

    run.ask(Connection="x-mine", x_mine="1", te="trailers", upgrade="h2c").read()

    [request] = run.api.requests
    assert not {"x-mine", "te", "upgrade"} & set(request.headers)


def test_a_prefix_of_the_base_url_stands_before_the_path(run_with):
    run = run_with(answer_json, prefix="/team/anthropic")

    run.ask(path="/v1/messages").read()

    assert run.api.requests[0].line == "POST /team/anthropic/v1/messages HTTP/1.1"


@pytest.mark.parametrize(
    "headers",
    [
        {"x_api_key": "wrong"},
        {"x_api_key": ""},
        {"x_api_key": "", "authorization": "Bearer wrong"},
        {"x_api_key": "", "authorization": "Basic x"},
        {"x_api_key": "\xe9\xff"},
        {"x_api_key": KEY},
    ],
)
def test_another_token_is_refused(run_with, headers):
    run = run_with(answer_json)

    answer = run.ask(**headers)

    assert (answer.status, error_in(answer)[0]) == (401, "authentication_error")
    assert run.api.requests == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/messages"),
        ("DELETE", "/v1/messages"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1/files"),
        ("POST", "/v1/messages/../files"),
        ("POST", "/v1/messages?beta=true&x=1"),
        ("POST", "/v1/organizations/api_keys"),
        ("POST", "http://elsewhere/v1/messages"),
        ("GET", "/"),
    ],
)
def test_other_paths_do_not_reach_the_api(run_with, method, path):
    run = run_with(answer_json)

    answer = run.ask(method=method, path=path)

    assert (answer.status, error_in(answer)[0]) == (404, "not_found_error")
    assert run.api.requests == []


def test_the_connection_check_is_answered_by_the_proxy(run_with):
    run = run_with(answer_json)

    assert run.ask(b"", method="HEAD", path="/").status == 200
    assert run.ask(b"", method="HEAD", path="/v1/x").status == 404
    assert run.api.requests == []


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/v1/messages", {"mcp_servers": [{"type": "url", "url": "https://elsewhere.example"}]}),
        ("/v1/messages/count_tokens", {"stream": True}),
    ],
)
def test_an_unknown_field_is_refused_by_name(run_with, path, part):
    run = run_with(answer_json)

    answer = run.ask({"model": "claude-haiku-4-5", **part}, path=path)

    assert (answer.status, answer.getheader("x-should-retry")) == (400, "false")
    kind, message = error_in(answer)
    assert kind == "invalid_request_error"
    assert next(iter(part)) in message
    assert run.api.requests == []


@pytest.mark.parametrize(("tools", "status"), [(("Bash", "WebSearch"), 200), (("Bash",), 400)])
def test_a_web_search_needs_a_tier_with_that_tool(run_with, tools, status):
    run = run_with(answer_json, tools=tools)
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}

    answer = run.ask({"model": "claude-haiku-4-5", "tools": [search]})

    assert answer.status == status
    assert len(run.api.requests) == (status == 200)


def test_a_token_is_invalid_after_its_run(run_with):
    run = run_with(answer_json)
    kept = run.connect()
    run.ask(connection=kept).read()

    run.end()

    with pytest.raises((OSError, http.client.HTTPException)):
        run.ask(connection=kept)
    with pytest.raises(ConnectionRefusedError):
        run.ask()
    assert len(run.api.requests) == 1


def test_the_token_of_another_run_is_refused(run_with):
    first, second = run_with(answer_json), run_with(answer_json)

    answer = second.ask(x_api_key=first.serving.token)

    assert answer.status == 401
    assert second.api.requests == []


def test_another_model_does_not_reach_the_api(run_with):
    run = run_with(answer_json, models=("haiku", "sonnet"))

    answer = run.ask({"model": "claude-opus-4-1"})

    assert answer.status == 403
    assert answer.getheader("x-should-retry") == "false"
    kind, message = error_in(answer)
    assert kind == "permission_error"
    assert "'claude-opus-4-1'" in message
    assert "haiku, sonnet" in message
    assert run.api.requests == []
    assert run.api_proxy.refused == ""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"haiku"',
        b"\xff",
        b"{}",
        b'{"model": 1}',
        b'{"model": "haiku", "mod\\u0065l": "opus"}',
        b'{"model": "haiku-' + b"x" * 300 + b'"}',
        b"[" * 100_000,
    ],
)
def test_a_request_without_one_clear_model_does_not_reach_the_api(run_with, body):
    run = run_with(answer_json)

    answer = run.ask(body)

    assert (answer.status, error_in(answer)[0]) == (400, "invalid_request_error")
    assert run.api.requests == []


def test_a_stream_is_counted_by_its_last_figures(run_with):
    run = run_with(answer_well)

    run.ask().read()

    assert run.api_proxy.spending.by_model == {"claude-haiku-4-5-20251001": USED}
    assert (run.api_proxy.spending.answers, run.api_proxy.spending.cut_off) == (1, 0)
    assert run.api_proxy.spending.tokens == USED


def test_a_json_answer_is_counted(run_with):
    run = run_with(answer_json)

    run.ask({"model": "haiku"}).read()

    assert run.api_proxy.spending.by_model == {"claude-haiku-4-5": USED}
    assert run.api_proxy.spending.cut_off == 0


def test_the_count_is_on_disk_before_the_client_has_the_end(run_with):
    run = run_with(answer_well)

    answer = run.ask()
    while b"message_stop" not in answer.read1():
        pass

    assert read_ledger(run.ledger).tokens == USED


def test_what_was_read_is_on_disk_when_an_answer_begins(run_with):
    read = threading.Event()

    def begin(connection, _api):
        connection.sendall(head(200, CHUNKED) + chunk(message_start(output_tokens=1)))
        assert read.wait(10)

    run = run_with(begin)
    run.ask().read1()

    spending = read_ledger(run.ledger)
    read.set()
    assert spending.tokens == Tokens(input=11, output=1, cache_read=33, cache_creation=44)
    assert (spending.answers, spending.cut_off) == (1, 1)


def test_counting_tokens_costs_nothing(run_with):
    run = run_with(answer_json)

    assert run.ask({"model": "haiku"}, path="/v1/messages/count_tokens").read()

    assert len(run.api.requests) == 1
    assert run.api_proxy.spending.answers == 0


def test_a_run_is_stopped_between_two_requests(run_with):
    run = run_with(
        answer_well,
        objection=lambda spending: "The run's budget is spent." if spending.answers else "",
    )
    connection = run.connect()

    assert run.ask(connection=connection).read() == b"".join(STREAM)
    assert run.api_proxy.refused == ""
    answer = run.ask(connection=connection)

    assert (answer.status, answer.getheader("x-should-retry")) == (403, "false")
    assert error_in(answer) == ("permission_error", "The run's budget is spent.")
    assert run.api_proxy.refused == "The run's budget is spent."
    assert len(run.api.requests) == 1


def test_a_budget_that_cannot_be_checked_stops_the_run(run_with):
    def broken(_spending):
        raise RuntimeError("the database is locked")

    run = run_with(answer_well, objection=broken)

    assert run.ask().status == 403
    assert run.api_proxy.refused
    assert run.api.requests == []


def test_the_accounts_limits_are_passed_on_and_remembered(run_with):
    run = run_with(
        answer_error(
            429, "retry-after: 77", "anthropic-ratelimit-unified-status: rejected", "x-other: 1"
        )
    )

    answer = run.ask()

    assert (answer.status, answer.getheader("retry-after")) == (429, "77")
    assert answer.getheader("anthropic-ratelimit-unified-status") == "rejected"
    limits = run.api_proxy.limits
    assert (limits.status, limits.retry_after) == (429, "77")
    assert limits.headers == {"anthropic-ratelimit-unified-status": "rejected"}


def test_a_connection_to_the_api_is_used_again(run_with):
    run = run_with(answer_well)

    for _request in range(5):
        run.ask().read()

    assert (len(run.api.requests), run.api.connections) == (5, 1)


def test_no_key_and_no_token_stand_in_what_is_printed_or_logged(run_with, caplog):
    caplog.set_level(logging.DEBUG)
    run = run_with(answer_error(500))

    run.ask().read()
    run.ask({"model": "opus"}).read()
    printed = f"{run.api_proxy!r} {run.serving!r} {upstream_at(1)!r} {vars(run.api_proxy)!r}"

    assert KEY not in printed + caplog.text
    assert run.serving.token not in f"{run.api_proxy!r} {run.serving!r}" + caplog.text


def test_a_api_proxy_goes_on_counting_where_its_ledger_ends(run_with, tmp_path):
    run = run_with(answer_well)
    run.ask().read()

    again = ApiProxy(
        upstream_at(run.api.port),
        models=("haiku",),
        tools=(),
        objection=lambda _s: "",
        ledger=run.ledger,
    )

    assert again.spending == run.api_proxy.spending
    assert again.spending.answers == 1
