"""The `claude` binary of this installation: its path, its flags, its command line and environment.

Asking the binary takes half a second, so its answers are stored in the state directory under a
fingerprint of the file. A replaced binary is asked again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from django.conf import settings

from escalation.agent.process import Traces
from escalation.errors import CliMissing
from escalation.tiers import Tier
from sessions_app.credentials import API_KEY, LOGINS, TABLE, WITHHELD_FROM_CLI
from sessions_app.models.watch import CONFIGURATION_FILES

QUESTION_TIMEOUT_SECONDS = 20
FORK_FLAG = "--fork-session"
INPUT_FLAG = "--input-format"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaudeBinary:
    path: str
    source: str
    """CLAUDEOPS_CLAUDE_BIN, PATH or bundled."""
    version: str
    flags: tuple[str, ...]

    @property
    def can_resume(self) -> bool:
        return "--resume" in self.flags

    @property
    def can_fork(self) -> bool:
        return FORK_FLAG in self.flags

    @property
    def takes_messages(self) -> bool:
        """True if it can be told something while it runs."""
        return INPUT_FLAG in self.flags

    @property
    def can_forget(self) -> bool:
        return "--no-session-persistence" in self.flags


def find_binary() -> ClaudeBinary:
    path, source = locate_binary()
    stat = path.stat()
    return _described(str(path), source, stat.st_size, stat.st_mtime_ns)


def locate_binary() -> tuple[Path, str]:
    """Return the path and its source: the setting, PATH if configured, or the bundled binary."""
    if chosen := settings.CLAUDEOPS_CLAUDE_BIN:
        return _usable(Path(chosen).expanduser(), "CLAUDEOPS_CLAUDE_BIN"), "CLAUDEOPS_CLAUDE_BIN"
    if settings.CLAUDEOPS_CLAUDE_FROM_PATH:
        found = shutil.which("claude")
        if found is None:
            raise CliMissing(
                "CLAUDEOPS_CLAUDE_FROM_PATH is set, but there is no `claude` on PATH. "
                "Install it, or unset the variable to use the bundled one."
            )
        return _usable(Path(found), "PATH"), "PATH"
    return _usable(_bundled(), "claude-agent-sdk"), "bundled"


def _bundled() -> Path:
    """Return the path without importing the package, which takes a second."""
    package = find_spec("claude_agent_sdk")
    if package is None or package.origin is None:
        raise CliMissing("The package claude-agent-sdk is not installed. Run `make install`.")
    return Path(package.origin).parent / "_bundled" / "claude"


def _usable(path: Path, origin: str) -> Path:
    if not path.is_file():
        raise CliMissing(
            f"There is no `claude` at {path} (from {origin}). "
            "Run `make install`, or point CLAUDEOPS_CLAUDE_BIN at the binary."
        )
    if not os.access(path, os.X_OK):
        raise CliMissing(f"{path} (from {origin}) is not executable. Run: chmod +x {path}")
    return path.absolute()


def fingerprint_of(path: Path) -> str:
    """Return a value that changes when the file is replaced. Links are followed."""
    stat = path.stat()
    return hashlib.sha256(
        f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}".encode()
    ).hexdigest()[:16]


@lru_cache(maxsize=8)
def _described(path: str, source: str, size: int, mtime_ns: int) -> ClaudeBinary:
    kept = Path(settings.CLAUDEOPS_STATE_DIR) / "cli" / f"{fingerprint_of(Path(path))}.json"
    if answers := _read_json(kept):
        return ClaudeBinary(
            path=path, source=source, version=answers["version"], flags=tuple(answers["flags"])
        )
    binary = ClaudeBinary(
        path=path,
        source=source,
        version=_ask(path, "--version").split("\n")[0].strip(),
        flags=tuple(sorted(set(re.findall(r"--[A-Za-z][\w-]*", _ask(path, "--help"))))),
    )
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(asdict(binary)))
    return binary


def _read_json(path: Path) -> dict[str, str] | None:
    try:
        answers = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    complete = isinstance(answers, dict) and {"version", "flags"} <= answers.keys()
    return answers if complete else None


def _ask(path: str, question: str) -> str:
    try:
        answer = subprocess.run(
            [path, question],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=QUESTION_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CliMissing(f"`{path} {question}` does not answer: {error}") from error
    if answer.returncode != 0:
        detail = (answer.stderr or answer.stdout).strip()[:300]
        raise CliMissing(f"`{path} {question}` failed with code {answer.returncode}: {detail}")
    return answer.stdout


# Command line of one run. Every flag is given on every run: the CLI inherits none of them.

# The CLI deletes transcripts after 30 days by itself; a conversation that can be resumed is kept.
RUN_SETTINGS = json.dumps({"cleanupPeriodDays": 3650})
# The environment of the CLI holds the token of the run.
NO_ENVIRONMENT = ("Read(//proc/*/environ)", "Read(//proc/*/task/**)")
# In the working directory; a rule for Edit holds for every tool that writes a file.
NO_CONFIGURATION = tuple(f"Edit(/{name})" for name in CONFIGURATION_FILES)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    tier: Tier
    session_id: str
    """Id for the conversation of this run, in lower case."""
    resumes: str | None
    """Id of the conversation to continue; None starts a new one."""
    report_schema: str | None
    """None if no report is expected."""
    max_budget_usd: Decimal
    """The remaining budget of the tier."""
    is_kept: bool = True
    """Save the conversation, so that it can be resumed."""
    config_directory: str = ""
    """Configuration and conversations of the CLI, which its tools must not edit."""
    takes_messages: bool = False
    """Pass the prompt as a message, so that others can follow while it runs."""
    is_interactive: bool = False
    """A person talks to the CLI in a terminal, without turn limit and report."""


def build_argv(binary: ClaudeBinary, request: RunRequest) -> list[str]:
    """Return the command line. The prompt goes by stdin, where no variadic flag can take it."""
    tier = request.tier
    return [
        binary.path,
        *(() if request.is_interactive else ("-p",)),
        *_conversation_flags(binary, request),
        *(() if request.is_kept or not binary.can_forget else ("--no-session-persistence",)),
        *("--model", tier.model),
        *(() if request.is_interactive else _print_flags(request)),
        *("--permission-mode", "dontAsk"),
        *("--setting-sources", ""),
        *("--settings", RUN_SETTINGS),
        "--strict-mcp-config",
        *("--tools", ",".join(tier.tool_names)),
        *("--allowedTools", ",".join(tier.allowed_tools)),
        *(
            "--disallowedTools",
            ",".join((*tier.disallowed_tools, *_own_files(request.config_directory))),
        ),
    ]


def _print_flags(request: RunRequest) -> tuple[str, ...]:
    """Return the flags that the CLI takes only without a terminal."""
    return (
        *((INPUT_FLAG, "stream-json") if request.takes_messages else ()),
        *("--output-format", "stream-json", "--verbose"),
        *(("--json-schema", request.report_schema) if request.report_schema else ()),
        *("--max-turns", str(request.tier.max_turns)),
        *("--max-budget-usd", f"{request.max_budget_usd:f}"),
    )


def _own_files(directory: str) -> tuple[str, ...]:
    """Return rules that keep tools from files of the CLI, its instructions and its environment."""
    config = (f"Edit(/{directory}/**)",) if directory else ()
    return (*config, *NO_CONFIGURATION, *NO_ENVIRONMENT)


def conversation_id(binary: ClaudeBinary, request: RunRequest) -> str:
    """Return the id to expect in the stream. A CLI that cannot fork keeps the resumed id."""
    if request.resumes and not binary.can_fork:
        return request.resumes
    return request.session_id


def _conversation_flags(binary: ClaudeBinary, request: RunRequest) -> list[str]:
    if not request.resumes:
        return ["--session-id", request.session_id]
    resume = ["--resume", request.resumes]
    if not binary.can_fork:
        return resume
    return [*resume, FORK_FLAG, "--session-id", request.session_id]


# Environment of the CLI and its tools: a short list, and the names in CLAUDEOPS_PASS_ENV.

ALWAYS_PASSED = ("PATH", "LANG", "LC_ALL", "TZ")
OF_TERMINAL = ("TERM", "COLORTERM")
"""Variables that describe the terminal of an interactive session."""
RUN_MARK = "CLAUDEOPS_RUN"

# Proxy settings for the API. Like the credentials, they reach the API proxy only, not the CLI.
WAY_TO_API = (
    *("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"),
    "NODE_EXTRA_CA_CERTS",
)


def no_credentials() -> str:
    """Return what to do without credentials, with the file of settings that is in use."""
    return (
        f"No API key is configured: only drills can run. Set {API_KEY} in the environment or in "
        f"{settings.CLAUDEOPS_ENV_FILE} and start again; docs/credentials.md has the other ways to "
        "log in."
    )


def has_credentials(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name) for name in LOGINS)


def credentials_configured() -> bool:
    """Return whether this installation has credentials for real runs."""
    return has_credentials(login_from(os.environ, settings.CLAUDEOPS_PASS_ENV))


def login_from(run_environment: Mapping[str, str], named: Iterable[str]) -> dict[str, str]:
    """Return credentials and proxy settings, as far as the operator passes them."""
    wanted = set(named)
    names = (
        row.name
        for row in TABLE
        if (row.name in wanted or not row.is_optional)
        and (row.name in WITHHELD_FROM_CLI or run_environment.get(row.cloud))
    )
    return {
        name: run_environment[name] for name in (*names, *WAY_TO_API) if run_environment.get(name)
    }


def credential_in(login: Mapping[str, str]) -> str:
    """Describe the credential that the CLI prefers; empty if there is none."""
    found = next((name for name in LOGINS if login.get(name)), "")
    return f"{found}: {LOGINS[found]}" if found else ""


def cli_environment(
    run_environment: Mapping[str, str],
    *,
    home: Path,
    config_directory: Path,
    api_retries: int,
    also_pass: Iterable[str] = (),
    traces: Traces = Traces(),  # noqa: B008 - frozen
) -> dict[str, str]:
    """Return the environment without credentials, API address and shell prefix."""
    passed = {
        name: run_environment[name]
        for name in (*ALWAYS_PASSED, *also_pass)
        if run_environment.get(name) and name not in WITHHELD_FROM_CLI
    }
    return {
        "HOME": str(home),
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        **passed,
        "CLAUDE_CONFIG_DIR": str(config_directory),
        "CLAUDE_CODE_MAX_RETRIES": str(api_retries),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
        "DISABLE_AUTOUPDATER": "1",
        **({RUN_MARK: traces.mark} if traces.mark else {}),
    }


# The CLI shows dialogs at its first interactive start: the theme, the trust in the directory, the
# use of an API key. The operator has decided all of that already.
KEY_END_LENGTH = 20
"""Characters by which the CLI remembers an API key."""


def answer_first_dialogs(config_directory: Path, workdir: Path, api_key: str) -> None:
    """Store the answers to the dialogs of a first interactive start."""
    path = config_directory / ".claude.json"
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError):
        stored = {}
    kept = stored if isinstance(stored, dict) else {}
    projects = kept.get("projects")
    projects = projects if isinstance(projects, dict) else {}
    for directory in {str(workdir), os.path.realpath(workdir)}:
        project = projects.get(directory)
        answers = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        projects[directory] = {**(project if isinstance(project, dict) else {}), **answers}
    kept |= {"hasCompletedOnboarding": True, "projects": projects}
    kept.setdefault("theme", "dark")
    if api_key:
        kept["customApiKeyResponses"] = {"approved": [api_key[-KEY_END_LENGTH:]], "rejected": []}
    with tempfile.NamedTemporaryFile("w", dir=config_directory, delete=False) as file:
        file.write(json.dumps(kept))
    Path(file.name).replace(path)
