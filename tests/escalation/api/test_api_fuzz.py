"""Every operation with generated requests, by all checks of schemathesis."""

from __future__ import annotations

import json
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from escalation.api.docs import schema
from tests.escalation.api.conftest import EVERY_SCOPE, address_of, token_of

pytestmark = pytest.mark.django_db
LEFT_OUT = {"follow_cycle": "a stream, tried in test_api_events.py"}


@pytest.fixture
def loaded(settings: Any) -> Any:
    settings.CLAUDEOPS_API_RATE = 1_000_000
    settings.ALLOWED_HOSTS = ["*"]
    found = schemathesis.openapi.from_dict(schema())
    found.app = get_wsgi_application()
    # As Django's own client does: the connection of the test stays open.
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield found
    for signal in signals:
        signal.connect(close_old_connections)


def failures_of(loaded: Any, subject: dict[str, str], examples: int) -> list[str]:
    """Send requests to every operation, each in a transaction of its own that is rolled back."""
    token, found = token_of("admin", (*EVERY_SCOPE, "alerts:grafana")), []
    headers = {"Authorization": f"Bearer {token}"}
    for result in loaded.get_all_operations():
        operation = result.ok()
        if operation.definition.raw.get("operationId") in LEFT_OUT:
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            error = _tried(operation, mode, headers, subject, examples)
            if error:
                found.append(f"{operation.label} ({mode.value}): {error}")
    return found


def _tried(
    operation: Any, mode: GenerationMode, headers: dict[str, str], subject: Any, examples: int
) -> str:
    existing = parts_of(operation.path, subject)

    @seed(20261118)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode), is_existing=hypothesis_booleans())
    def try_it(case: Any, is_existing: bool) -> None:
        if is_existing and mode == GenerationMode.POSITIVE and existing:
            case.path_parameters = dict(existing)
        with transaction.atomic():
            response = case.call(headers=headers)
            left_out = [positive_data_acceptance] if is_refused(response) else []
            case.validate_response(response, excluded_checks=left_out, headers=headers)
            transaction.set_rollback(True)

    try:
        try_it()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        if type(error).__name__ == "Unsatisfiable":
            return ""  # nothing can be wrong in a request without parts
        causes = getattr(error, "exceptions", ()) or (error,)
        return " | ".join(str(cause)[:1500] for cause in causes)
    return ""


def is_refused(response: Any) -> bool:
    """Test for a request that fits the schema and is refused for what it says, by a code."""
    if response.status_code in (412, 428):
        return True
    return bool(
        response.status_code == 422 and json.loads(response.content)["code"] != "invalid_request"
    )


def hypothesis_booleans() -> Any:
    from hypothesis import strategies

    return strategies.booleans()


def parts_of(path: str, subject: dict[str, str]) -> dict[str, Any]:
    parts: dict[str, Any] = {
        name: subject[name]
        for name in ("watch", "probe", "remedy", "source")
        if f"{{{name}}}" in path
    }
    if "{number}" in path:
        parts["number"] = int(address_of(path, subject).split("/")[4])
    return parts


@pytest.mark.timeout(300)
def test_generated_requests_break_no_promise_of_the_schema(loaded, subject):
    assert "\n".join(failures_of(loaded, subject, 3)) == ""


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_many_generated_requests_break_no_promise_of_the_schema(loaded, subject):
    assert "\n".join(failures_of(loaded, subject, 150)) == ""
