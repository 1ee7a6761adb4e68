"""Commands that the rules of the CLI refused are judged afterwards and stored."""

from __future__ import annotations

from escalation.command_policy.decision import Decision
from escalation.run.command_checks import CLI_RULE, CliRefusals
from sessions_app.models.session import Verdict
from tests.tables import each_row

DENIED = Decision(verdict=Verdict.DENY, rule="needs Tier 2", reason="Not here.", allowed_from=2)
ALLOWED = Decision(verdict=Verdict.ALLOW, rule="understood")


def denial(command: object, name: str = "1", tool: str = "Bash") -> dict[str, object]:
    return {"tool_name": tool, "tool_use_id": name, "tool_input": {"command": command}}


def result(*denials: object) -> dict[str, object]:
    return {"type": "result", "permission_denials": list(denials)}


def test_a_refused_command_is_stored_with_the_tier_that_may_run_it():
    refusals = CliRefusals(lambda command: DENIED, "/srv")

    (record,) = refusals.in_line(result(denial("docker restart web")))

    assert (record.command, record.verdict, record.rule) == (
        "docker restart web",
        Verdict.DENY,
        CLI_RULE,
    )
    assert (record.allowed_from, record.reason, record.cwd) == (2, "Not here.", "/srv")


def test_command_refused_by_the_cli_is_denied_though_the_policy_allows_it():
    (record,) = CliRefusals(lambda command: ALLOWED, "/").in_line(result(denial("ls")))

    assert (record.verdict, record.allowed_from) == (Verdict.DENY, 0)


def test_repeated_refusal_is_recorded_once():
    refusals = CliRefusals(lambda command: DENIED, "/")
    line = result(denial("ls"), denial("ls", name="2"))

    assert (len(list(refusals.in_line(line))), len(list(refusals.in_line(line)))) == (2, 0)


@each_row(
    "line",
    [
        {"type": "assistant", "permission_denials": [denial("ls")]},
        {"type": "result"},
        {"type": "result", "permission_denials": None},
        {"type": "result", "permission_denials": "none"},
        result(denial("x", tool="Write")),
        result(denial(None), denial(3), denial("")),
        result(None, "x", 3, {}),
    ],
)
def test_other_and_malformed_lines_contain_no_refusal(line):
    assert list(CliRefusals(lambda command: DENIED, "/").in_line(line)) == []
