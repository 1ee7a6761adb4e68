"""Does the login that was found really open the API? One short question, by the CLI itself."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from escalation.agent.binary import ClaudeBinary
from escalation.agent.environment import cli_environment
from escalation.tiers import DEFAULT_TIERS

PATIENCE_SECONDS = 90
QUESTION = "Answer with the one word ok."
LONGEST_ANSWER = 300
LET_IN = "it works"
NO_ANSWER = f"the API gave no answer within {PATIENCE_SECONDS} s"


def try_login(binary: ClaudeBinary, login: Mapping[str, str]) -> tuple[bool, str]:
    """Whether it was let in, and what was said. Beside the state: nothing of it is kept."""
    argv = [
        *(binary.path, "-p", "--model", DEFAULT_TIERS[0].model),
        *("--max-turns", "1", "--output-format", "json"),
    ]
    with tempfile.TemporaryDirectory(prefix="claudeops-login-") as directory:
        place = Path(directory)
        environment = cli_environment(
            os.environ, home=place, config_directory=place / "config", api_retries=0
        )
        try:
            ended = subprocess.run(
                argv,
                input=QUESTION,
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
                cwd=place,
                env={**environment, **login},
            )
        except subprocess.TimeoutExpired:
            return False, NO_ANSWER
        except OSError as error:
            return False, f"the CLI could not be started: {error}"
    return _judged(ended)


def _judged(ended: subprocess.CompletedProcess[str]) -> tuple[bool, str]:
    result = _result(ended.stdout)
    if ended.returncode == 0 and result.get("is_error") is False:
        return True, LET_IN
    said = str(result.get("result") or ended.stderr or ended.stdout).strip()
    return False, f"it does not work: {said[:LONGEST_ANSWER] or 'the CLI said nothing'}"


def _result(printed: str) -> dict[str, Any]:
    try:
        result = json.loads(printed)
    except ValueError:
        return {}
    return result if isinstance(result, dict) else {}
