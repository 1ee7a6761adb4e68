"""ansible and terraform."""

from __future__ import annotations

from escalation.command_policy.grants import NETWORK, SSH
from escalation.command_policy.programs.options import Grammar, acts, literal, looks, names, read
from escalation.command_policy.understanding import FULL, NEVER, Understanding, Word

TERRAFORM_READS = frozenset({"version", "validate", "show", "output", "providers", "graph"})
TERRAFORM_CHANGES = names(
    "plan apply init import taint untaint refresh get workspace force-unlock test"
)


def ansible(argv: tuple[Word, ...]) -> Understanding | None:
    """Read ansible; a check runs modules on the hosts, too."""
    if argv[1:] == ("--version",):
        return looks(argv)
    return Understanding(
        action=str(argv[0]),
        arguments=argv[1:],
        level=FULL,
        grants=frozenset({SSH, NETWORK}),
        needs_agent=True,
        why="acts on many hosts",
    )


def ansible_reads(argv: tuple[Word, ...]) -> Understanding | None:
    """Read commands that only show; an inventory may be a program."""
    return Understanding(action=str(argv[0]), arguments=argv[1:], runs_unseen=True)


def terraform(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], "-chdir= -version --version", to_operand=True)
    if line is None or line.unsure:
        return None
    words = literal(line.operands[:2])
    if not words:
        return None
    verb, rest, program = words[0], line.operands[1:], str(argv[0])
    if verb in TERRAFORM_READS or (verb, *rest[:1]) in (("state", "list"), ("state", "show")):
        return Understanding(action=f"{program} {verb}", arguments=rest, runs_unseen=True)
    if verb == "destroy" or any((word or "").lstrip("-") == "destroy" for word in rest):
        return acts(f"{program} destroy", rest, NEVER, "takes whole systems down", NETWORK)
    if verb not in TERRAFORM_CHANGES:
        return None
    return acts(f"{program} {verb}", rest, FULL, "acts on whole systems", NETWORK)


GRAMMARS: dict[str, Grammar] = {
    "ansible": ansible,
    "ansible-playbook": ansible,
    "ansible-inventory": ansible_reads,
    "ansible-doc": ansible_reads,
    "terraform": terraform,
    "tofu": terraform,
}
