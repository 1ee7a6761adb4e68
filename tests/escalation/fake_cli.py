"""A stand-in for `claude`: answers --version and --help, then does what the test prepared.

Behaviours are Python programs, used in order, the last one again and again. Each call is kept
with its arguments, environment, directory and stdin.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from escalation.agent import capabilities
from escalation.agent.binary import fingerprint_of
from escalation.report import Report
from escalation.tiers import get_tier
from sessions_app.tiers import tier_numbers
from tests.escalation.rows import ESCALATE, HEALTHY

LAUNCHER = """\
#!/bin/sh
case "$1" in
--version) echo "{version} (Fake Claude)"; exit 0 ;;
--help) echo "  --session-id --model {flags}"; exit 0 ;;
esac
exec {python} -IS {directory}/run.py "$@"
"""

RUN = """\
import json, os, re, signal, sys, time
HERE = {directory!r}
HEALTHY, ESCALATE = json.loads({healthy!r}), json.loads({escalate!r})
asked = sys.argv[sys.argv.index("--session-id") + 1] if "--session-id" in sys.argv else (
    sys.argv[sys.argv.index("--resume") + 1])
model = sys.argv[sys.argv.index("--model") + 1]

def out(line):
    sys.stdout.write(line + "\\n")
    sys.stdout.flush()

def emit(**fields):
    out(json.dumps(fields))

def init(**fields):
    fields = {{"session_id": asked, "model": model, **fields}}
    emit(type="system", subtype="init", **fields)
    if "--resume" in sys.argv and "--session-id" in sys.argv:
        take_over(sys.argv[sys.argv.index("--resume") + 1], fields["session_id"] or asked)
    remember(fields["session_id"] or asked)

project = re.sub("[^a-zA-Z0-9]", "-", os.path.realpath(os.getcwd()))
folder = os.path.join(os.environ["CLAUDE_CONFIG_DIR"], "projects", project)

def take_over(parent, conversation):
    # As the CLI does: a fork begins with a copy of what it resumes.
    source = os.path.join(folder, f"{{parent}}.jsonl")
    if os.path.exists(source):
        with open(os.path.join(folder, f"{{conversation}}.jsonl"), "w") as transcript:
            transcript.write(open(source).read())

def remember(conversation, **entry):
    # As the CLI does: without a transcript there is nothing to resume.
    os.makedirs(folder, exist_ok=True)
    entry = entry or {{"type": "user", "uuid": f"{{conversation}}-{{number}}",
        "message": {{"role": "user", "content": "the prompt"}}}}
    with open(os.path.join(folder, f"{{conversation}}.jsonl"), "a") as transcript:
        transcript.write(json.dumps(entry) + "\\n")

def say(text="I look."):
    usage = {{"input_tokens": 100, "output_tokens": 1}}
    emit(type="assistant", parent_tool_use_id=None, message={{
        "id": "msg_1", "model": model, "usage": usage,
        "content": [{{"type": "text", "text": text}}]}})

def tool(command, output, failed=False):
    global used
    used += 1
    block = {{"type": "tool_use", "id": f"tool_{{used}}", "name": "Bash",
        "input": {{"command": command}}}}
    emit(type="assistant", parent_tool_use_id=None, message={{
        "id": f"msg_tool_{{used}}", "model": model, "content": [block],
        "usage": {{"input_tokens": 100, "output_tokens": 1}}}})
    emit(type="user", message={{"role": "user", "content": [{{"type": "tool_result",
        "tool_use_id": f"tool_{{used}}", "content": output, "is_error": failed}}]}})
    remember(asked, type="assistant", uuid=f"{{asked}}-tool-{{used}}",
        parentUuid=f"{{asked}}-{{number}}" if used == 1 else f"{{asked}}-tool-{{used - 1}}",
        message={{"role": "assistant", "content": [block]}})

def result(report=None, **fields):
    emit(**{{
        "type": "result", "subtype": "success", "is_error": False, "session_id": asked,
        "num_turns": 2, "total_cost_usd": 0.018000000000000002, "result": "done",
        "usage": {{"input_tokens": 100, "output_tokens": 20}},
        "structured_output": report, **fields}})

used, prompt = 0, sys.stdin.read()
with open(HERE + "/calls.jsonl", "a+") as calls:
    calls.seek(0)
    number = len(calls.readlines())
    calls.write(json.dumps({{
        "argv": sys.argv[1:], "environment": dict(os.environ), "directory": os.getcwd(),
        "stdin": prompt}}) + "\\n")
programs = sorted(name for name in os.listdir(HERE) if name.startswith("behaviour-"))
exec(open(os.path.join(HERE, programs[min(number, len(programs) - 1)])).read())
"""

PER_RUN = {
    "version": "9.9.9 (Fake Claude)",
    "works": True,
    "keeps_id_on_resume": True,
    "can_fork": True,
    "accumulates_on_resume": False,
    "accumulates_on_fork": False,
    "states_own_share": False,
    "appended_prompt_sticks": False,
    "missing_flags": [],
    "refused_by_api_proxy": [],
    "betas_removed": [],
    "problem": "",
}


@dataclass(frozen=True)
class Call:
    argv: list[str]
    environment: dict[str, str]
    directory: str
    stdin: str

    def flag(self, name: str) -> str:
        return self.argv[self.argv.index(name) + 1]


class FakeCli:
    def __init__(
        self,
        directory: Path,
        *,
        can_resume: bool = True,
        can_fork: bool = True,
        version: str = "9.9.9",
        flags: str = "",
    ) -> None:
        self.directory = directory
        self.path = directory / "claude"
        self._prepared = 0
        directory.mkdir()
        flags = "--resume " * can_resume + "--fork-session " * can_fork + flags
        places = {"python": sys.executable, "directory": str(directory)}
        self.path.write_text(LAUNCHER.format(version=version, flags=flags, **places))
        self.path.chmod(0o755)
        (directory / "run.py").write_text(
            RUN.format(
                directory=str(directory),
                healthy=json.dumps(HEALTHY),
                escalate=json.dumps(ESCALATE),
            )
        )

    def install(self, settings: Any, **found: Any) -> FakeCli:
        """Make it the CLI of this installation, with capabilities as if a probe had settled it."""
        settings.CLAUDEOPS_CLAUDE_BIN = str(self.path)
        kept = capabilities._kept(fingerprint_of(self.path))
        kept.parent.mkdir(parents=True, exist_ok=True)
        prices = {get_tier(number).model: "" for number in tier_numbers()}
        kept.write_text(json.dumps({**PER_RUN, "prices": prices, **found}))
        return self

    def then(self, program: str) -> FakeCli:
        """Prepare the behaviour of the next call."""
        self._prepared += 1
        (self.directory / f"behaviour-{self._prepared:03}.py").write_text(program)
        return self

    def reports(self, report: Report | None, **result: Any) -> FakeCli:
        """Prepare an ordinary run that looks at one thing and ends with this report."""
        return self.then(
            "init(); say(); tool('uptime', 'up 3 days');"
            f"result(json.loads({json.dumps(report)!r}), **json.loads({json.dumps(result)!r}))"
        )

    @property
    def calls(self) -> list[Call]:
        log = self.directory / "calls.jsonl"
        if not log.exists():
            return []
        return [Call(**json.loads(line)) for line in log.read_text().splitlines()]
