"""Capabilities of a CLI, probed with small CLIs that differ."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from escalation.agent import capabilities
from escalation.agent.binary import ClaudeBinary, find_binary
from escalation.agent.capabilities import (
    NEEDED_FLAGS,
    STUDIED_VERSIONS,
    Capabilities,
    capabilities_of,
    find_out,
    forget_capabilities,
    probe,
)
from escalation.tiers import DEFAULT_TIERS

# Speaks stream-json, asks the API as the real one does, charges a millionth of a dollar for each
# token, and keeps totals by conversation.
PROGRAM = """\
#!{python} -IS
import json, os, socket, sys
HERE, FLAGS, VERSION = {here!r}, {flags!r}, {version!r}
args = sys.argv[1:]
if args == ["--version"]:
    print(VERSION); sys.exit(0)
if args == ["--help"]:
    print(FLAGS); sys.exit(0)
with open(HERE + "/runs", "a") as runs:
    runs.write("x")

def value(flag):
    return args[args.index(flag) + 1] if flag in args else ""

prompt = "" if sys.stdin.isatty() else sys.stdin.read()
notes, extra, betas = [], {{}}, ""

def post(body):  # by hand: a library for it takes longer to load than all the rest
    host, _, path = os.environ["ANTHROPIC_BASE_URL"].removeprefix("http://").partition("/")
    with socket.create_connection(host.split(":")) as api:
        head = f"POST /{{path}}/v1/messages HTTP/1.0\\r\\nContent-Length: {{len(body)}}\\r\\n"
        head += f"anthropic-beta: {{betas}}\\r\\n\\r\\n"
        api.sendall(head.encode() + body)
        return api.makefile("rb").read().partition(b"\\r\\n\\r\\n")[2]

def ask(text, tools):
    body = dict(model="haiku", system=value("--append-system-prompt"), max_tokens=9, tools=tools,
        messages=[dict(role="user", content=text), *notes], **extra)
    usage = json.loads(post(json.dumps(body).encode()))["usage"]
    return (usage["input_tokens"] + usage["output_tokens"]) / 1e6

def call_api():
    return ask(prompt, [dict(name="Bash")])

def asides():
    return (ask("Warmup", [dict(name="Bash")]) + ask("Warmup", [dict(name="Read")])
        + ask("Write a title: " + prompt, []) + ask("Find the paths in this", [dict(name="Read")]))

def emit(**line):
    print(json.dumps(line))

def total(conversation, add):
    path = HERE + "/total-" + conversation
    before = float(open(path).read()) if os.path.exists(path) else 0.0
    open(path, "w").write(str(before + add))
    return before + add

def done(conversation, cost, **more):
    emit(type="system", subtype="init", session_id=conversation, model="haiku")
    emit(**{{"type": "result", "subtype": "success", "is_error": False,
        "session_id": conversation, "total_cost_usd": cost, **more}})

parent, asked = value("--resume"), value("--session-id")
conversation = asked or parent
{behaviour}
"""
ACCUMULATES = """
cost = call_api()
if parent and parent != conversation:
    total(conversation, total(parent, 0))
done(conversation, total(conversation, cost))
"""
ACCUMULATES_WITH_ASIDES = "asides();" + ACCUMULATES.strip().replace(
    "call_api()", "call_api() + asides()"
)
ACCUMULATES_ON_RESUME_ALONE = "cost = call_api(); done(conversation, total(conversation, cost))"
STATES_ITS_SHARE = """
cost = call_api()
share = {"haiku": {"costUSD": cost}}
if parent and parent != conversation:
    total(conversation, total(parent, 0))
done(conversation, total(conversation, cost), model_usage_since_last_result=share)
"""
PER_RUN = "done(conversation, call_api())"
# As 2.0.77 does: more calls of its own in a resumed run than in a fresh one.
PER_RUN_WITH_ASIDES = (
    "done(conversation, call_api() + (asides() + asides() + asides() if parent else asides()))"
)
UNACCOUNTABLE = "done(conversation, call_api() * (1.6 if parent else 1))"
FREE = "call_api(); done(conversation, 0)"
CANNOT_RESUME = """
if parent:
    sys.stderr.write("No conversation found with session ID: " + parent)
    emit(type="result", subtype="error_during_execution", is_error=True, session_id=parent)
    sys.exit(1)
done(conversation, call_api())
"""
CANNOT_FORK = """
if "--fork-session" in args:
    sys.stderr.write("--session-id cannot be used with --resume")
    sys.exit(1)
done(conversation, call_api())
"""
GIVES_ANOTHER_ID = "done('someone-else' if parent else conversation, call_api())"
BROKEN = "sys.stderr.write('missing library'); sys.exit(127)"
BREAKS_ON_RESUME = "sys.exit(3) if parent else done(conversation, call_api())"
FIRST_FAILS = "done(conversation, call_api()); sys.exit(0 if parent else 1)"
# As 2.1.325 does: a note of the CLI stands behind the prompt.
ADDS_A_NOTE = "notes.append(dict(role='system', content='42 tokens left'));" + ACCUMULATES.strip()
SENDS_A_NEW_FIELD = "extra['warp'] = 9; done(conversation, call_api())"
SENDS_A_NEW_FIELD_LATER = "extra.update(warp=9) if parent else 0; done(conversation, call_api())"
SENDS_A_NEW_BETA = "betas = 'effort-2025-11-24, warp-2027-01-01';done(conversation, call_api())"
NEVER_CALLS = "done(conversation, 0.01)"
STICKS = """
if parent and "--append-system-prompt" in args:
    args[args.index("--append-system-prompt") + 1] = "the-first-appended-words"
done(conversation, call_api())
"""
FAILS_ONCE = """
if not os.path.exists(HERE + "/failed"):
    open(HERE + "/failed", "w").close()
    sys.stderr.write("the machine is busy"); sys.exit(1)
done(conversation, call_api())
"""


@pytest.fixture
def cli(settings, tmp_path):
    """Write a CLI that behaves so, and make it the one of this installation."""

    def write(
        behaviour: str,
        *,
        version: str = "7.0.0 (Little Claude)",
        flags: tuple[str, ...] = (*NEEDED_FLAGS, "--fork-session"),
    ) -> ClaudeBinary:
        path = tmp_path / "claude"
        path.write_text(
            PROGRAM.format(
                python=sys.executable,
                here=str(tmp_path),
                flags=" ".join(flags),
                version=version,
                behaviour=behaviour,
            )
        )
        path.chmod(0o755)
        settings.CLAUDEOPS_CLAUDE_BIN = str(path)
        return find_binary()

    return write


PROBE_RUNS = 5
"""A new, a resumed and a forked run with the model of Tier 1, and one for each other model."""


def runs_in(directory: Path) -> int:
    log = directory / "runs"
    return len(log.read_text()) if log.exists() else 0


@pytest.mark.parametrize("behaviour", [ACCUMULATES, ACCUMULATES_WITH_ASIDES, ADDS_A_NOTE])
def test_a_cli_that_accumulates_costs_is_recognised(cli, behaviour):
    found = probe(cli(behaviour))

    assert (found.accumulates_on_resume, found.accumulates_on_fork) == (True, True)
    assert (found.works, found.states_own_share) == (True, False)
    assert (found.can_fork, found.keeps_id_on_resume) == (True, True)
    assert found.verdict.endswith("cost is reported cumulative")


def test_a_cli_whose_forks_start_at_zero_is_recognised(cli):
    found = probe(cli(ACCUMULATES_ON_RESUME_ALONE))

    assert (found.accumulates_on_resume, found.accumulates_on_fork) == (True, False)


def test_a_cli_that_states_its_own_share_is_recognised(cli):
    found = probe(cli(STATES_ITS_SHARE))

    assert (found.states_own_share, found.accumulates_on_fork) == (True, True)
    assert found.verdict.endswith("cost is reported cumulative, with each run's own share")


@pytest.mark.parametrize("behaviour", [PER_RUN, PER_RUN_WITH_ASIDES])
def test_a_cli_that_reports_costs_per_run_is_recognised(cli, behaviour):
    found = probe(cli(behaviour))

    assert (found.accumulates_on_resume, found.accumulates_on_fork) == (False, False)
    assert found.is_usable
    assert found.verdict.endswith("cost is reported per run")


@pytest.mark.parametrize("behaviour", [UNACCOUNTABLE, FREE])
def test_a_cost_that_matches_neither_run_nor_conversation_is_unknown(cli, behaviour):
    found = probe(cli(behaviour))

    assert (found.accumulates_on_resume, found.accumulates_on_fork) == (None, None)
    assert found.is_usable
    assert found.verdict.endswith("that of resumed runs stays unknown")


def test_a_cli_that_cannot_fork_is_usable(cli, tmp_path):
    found = probe(cli(ACCUMULATES, flags=NEEDED_FLAGS))

    assert (found.can_fork, found.is_usable) == (False, True)
    assert found.accumulates_on_fork
    assert runs_in(tmp_path) == 2


def test_a_cli_that_knows_the_flag_but_gives_another_id_cannot_fork(cli):
    found = probe(cli(GIVES_ANOTHER_ID))

    assert (found.can_fork, found.keeps_id_on_resume) == (False, False)


def test_a_cli_that_cannot_resume_is_unusable_with_its_message(cli):
    found = probe(cli(CANNOT_RESUME))

    assert not found.is_usable
    assert "No conversation found" in found.verdict


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (BROKEN, "a fresh run printed no result (missing library)"),
        (BREAKS_ON_RESUME, "a resumed run printed no result (exit code 3)"),
        (CANNOT_FORK, "a forked run printed no result (--session-id cannot be used with --resume)"),
    ],
)
def test_a_broken_cli_is_unusable_with_its_error(cli, behaviour, said):
    found = probe(cli(behaviour))

    assert (found.works, found.is_usable) == (False, False)
    assert found.verdict == f"unusable: {said}"


def test_a_failed_first_run_is_in_the_verdict(cli):
    found = probe(cli(FIRST_FAILS))

    assert found.verdict == "unusable: a fresh run did not end well (exit code 1)"


def test_a_cli_that_never_calls_the_api_is_unusable(cli):
    assert probe(cli(NEVER_CALLS)).verdict


@pytest.mark.parametrize("behaviour", [SENDS_A_NEW_FIELD, SENDS_A_NEW_FIELD_LATER])
def test_a_cli_that_sends_what_the_api_proxy_refuses_is_unusable(cli, behaviour, settings):
    found = capabilities_of(cli(behaviour))

    assert (found.works, found.is_usable) == (True, False)
    assert found.refused_by_api_proxy == ("warp",)
    assert "(warp)" in found.verdict
    assert list(settings.CLAUDEOPS_STATE_DIR.glob("cli/*.capabilities.json")) == []


def test_a_beta_that_the_api_proxy_removes_is_named(cli):
    binary = cli(SENDS_A_NEW_BETA)
    found = capabilities_of(binary)
    capabilities._remembered.clear()

    assert (found.is_usable, found.betas_removed) == (True, ("warp-2027-01-01",))
    assert capabilities_of(binary) == found


def test_the_forked_run_has_the_tools_of_the_second_tier(cli, tmp_path):
    """A conversation that gets new tools may send what no other run sends."""
    probe(cli("open(HERE + '/tools', 'a').write(value('--tools') + '\\n');" + PER_RUN))

    tools = (tmp_path / "tools").read_text().splitlines()
    observing, remediating = (",".join(tier.tool_names) for tier in DEFAULT_TIERS[:2])
    assert tools == [observing, observing, remediating]


def test_a_missing_cli_is_unusable(cli, tmp_path):
    binary = cli(PER_RUN)
    (tmp_path / "claude").unlink()

    assert not probe(binary).is_usable


@pytest.mark.parametrize(("behaviour", "sticks"), [(PER_RUN, False), (STICKS, True)])
def test_whether_an_appended_prompt_is_kept_is_read_from_the_requests(cli, behaviour, sticks):
    assert probe(cli(behaviour)).appended_prompt_sticks is sticks


def test_missing_flags_make_it_unusable_without_a_run(cli, tmp_path):
    flags = tuple(flag for flag in NEEDED_FLAGS if flag not in {"--tools", "--json-schema"})

    found = find_out(cli(PER_RUN, flags=flags))

    assert not found.is_usable
    assert found.verdict == "unusable: it does not know --json-schema, --tools"
    assert runs_in(tmp_path) == 0


@pytest.mark.parametrize("version", STUDIED_VERSIONS)
def test_a_studied_version_is_marked(cli, version):
    assert "(studied)" in probe(cli(PER_RUN, version=f"{version} (Claude Code)")).verdict


def test_an_unknown_version_is_judged_by_the_probe(cli):
    verdict = probe(cli(PER_RUN, version="99.0.0 (Claude Code)")).verdict

    assert verdict.startswith("usable (not seen before, judged by the probe alone)")


def test_capabilities_are_stored_and_not_probed_again(cli, tmp_path):
    binary = cli(ACCUMULATES)
    first = capabilities_of(binary)
    capabilities._remembered.clear()

    assert capabilities_of(binary) == first
    assert runs_in(tmp_path) == PROBE_RUNS


def test_req5_the_price_of_every_tiers_model_is_learned(cli):
    found = capabilities_of(cli(PER_RUN))

    price = Decimal("0.00101") / Decimal(1050)
    assert [found.price_of(model) for model in ("haiku", "sonnet", "opus")] == [price] * 3
    assert found.price_of("other") is None


def test_req5_a_new_model_of_a_tier_needs_one_more_run(cli, tmp_path, settings):
    binary = cli(PER_RUN)
    capabilities_of(binary)

    tiers = dict(settings.CLAUDEOPS_TIERS)
    settings.CLAUDEOPS_TIERS = {**tiers, 3: replace(tiers[3], model="newest")}
    found = capabilities_of(binary)

    assert found.price_of("newest") == found.price_of("haiku")
    assert runs_in(tmp_path) == PROBE_RUNS + 1


def test_a_replaced_binary_is_probed_again(cli, tmp_path):
    before = capabilities_of(cli(ACCUMULATES))

    after = capabilities_of(cli(PER_RUN))

    assert (before.accumulates_on_fork, after.accumulates_on_fork) == (True, False)
    assert runs_in(tmp_path) == 2 * PROBE_RUNS


def test_forgotten_capabilities_are_probed_again(cli, tmp_path):
    binary = cli(PER_RUN)
    capabilities_of(binary)

    forget_capabilities(binary)
    capabilities_of(binary)

    assert runs_in(tmp_path) == 2 * PROBE_RUNS


@pytest.mark.parametrize("content", ["", "{broken", "[]", "{}", '{"missing_flags": 7}'])
def test_unreadable_capabilities_are_probed_again(cli, settings, content):
    binary = cli(PER_RUN)
    capabilities_of(binary)
    (kept,) = (settings.CLAUDEOPS_STATE_DIR / "cli").glob("*.capabilities.json")
    kept.write_text(content)
    capabilities._remembered.clear()

    assert capabilities_of(binary).works
    assert json.loads(kept.read_text())["works"] is True


def test_a_failed_probe_is_not_stored(cli, settings, tmp_path):
    binary = cli(FAILS_ONCE)

    assert capabilities_of(binary).verdict == (
        "unusable: a fresh run printed no result (the machine is busy)"
    )
    assert list(settings.CLAUDEOPS_STATE_DIR.glob("cli/*.capabilities.json")) == []


def test_a_failed_probe_is_remembered_for_a_while(cli, tmp_path):
    binary = cli(FAILS_ONCE)
    capabilities_of(binary)

    assert not capabilities_of(binary).works
    assert runs_in(tmp_path) == 1


def test_a_failed_probe_is_repeated_later(cli, monkeypatch, settings):
    binary = cli(FAILS_ONCE)
    capabilities_of(binary)

    monkeypatch.setattr(capabilities, "TRY_AGAIN_SECONDS", 0)

    assert capabilities_of(binary).accumulates_on_fork is False
    assert len(list(settings.CLAUDEOPS_STATE_DIR.glob("cli/*.capabilities.json"))) == 1


def test_capabilities_with_an_unknown_cost_are_not_stored(cli, settings):
    assert not capabilities_of(cli(UNACCOUNTABLE)).is_settled
    assert list(settings.CLAUDEOPS_STATE_DIR.glob("cli/*.capabilities.json")) == []


def test_a_probe_that_never_ends_times_out(cli, monkeypatch):
    monkeypatch.setattr("escalation.agent.capabilities.RUN_TIMEOUT_SECONDS", 0.5)

    found = probe(cli("import time; time.sleep(60)"))

    assert "timed out after 0.5 seconds" in found.verdict


def test_the_probe_leaves_no_files_and_uses_no_credentials_of_the_operator(cli, tmp_path, settings):
    settings.CLAUDEOPS_STATE_DIR.mkdir(parents=True, exist_ok=True)
    spy = "open(HERE + '/environment', 'w').write(json.dumps(dict(os.environ)));" + PER_RUN

    probe(cli(spy))

    environment = json.loads((tmp_path / "environment").read_text())
    assert environment["ANTHROPIC_API_KEY"] == "probe"
    assert environment["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
    assert not Path(environment["CLAUDE_CONFIG_DIR"]).exists()


def test_capabilities_are_converted_to_json():
    found = Capabilities(
        version="1",
        works=True,
        keeps_id_on_resume=True,
        can_fork=True,
        accumulates_on_resume=False,
        accumulates_on_fork=False,
        states_own_share=False,
        appended_prompt_sticks=False,
        missing_flags=(),
    )
    binary = ClaudeBinary(path="/opt/claude", source="PATH", version="1", flags=())

    data = json.loads(json.dumps(found.as_data(binary)))

    assert (data["path"], data["verdict"]) == ("/opt/claude", found.verdict)
