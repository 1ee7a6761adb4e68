"""`doctor --probe` on the real CLI: with a valid and with an invalid credential."""

from __future__ import annotations

from typing import Any

import pytest

from escalation.agent.binary import find_binary
from escalation.agent.capabilities import try_login
from escalation.agent.messages_api import NO_USAGE, MessagesHandler, ScriptedAnswer, serve_messages

KEY = "sk-ant-api03-the-right-one"


class Grant(MessagesHandler):
    """Answers whoever has the right key."""

    def answer_to(self, request: dict[str, Any]) -> None:
        given = f"{self.headers['x-api-key']} {self.headers['authorization']}"
        if KEY in given:
            self.send_answer(ScriptedAnswer(say="ok", usage=NO_USAGE), request)
        else:
            self.send_error_body(401, "invalid x-api-key")


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
@pytest.mark.parametrize("key", [KEY, "sk-ant-api03-another"])
def test_a_valid_credential_is_accepted_and_an_invalid_one_refused(variable, key):
    with serve_messages(Grant, None) as port:
        base = f"http://127.0.0.1:{port}"
        let_in, said = try_login(find_binary(), {variable: key, "ANTHROPIC_BASE_URL": base})

    assert let_in == (key == KEY)
    assert ("it works" if let_in else "does not work") in said
