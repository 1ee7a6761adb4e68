"""ansible and terraform: whole descriptions of systems, and the programs that those name."""

from __future__ import annotations

from escalation.gate.doors import NETWORK, SSH
from escalation.gate.programs.answers import Grammar, acts, looks
from escalation.gate.programs.options import literal, names, read
from escalation.gate.understanding import FULL, NEVER, Understanding, Word

TERRAFORM_READS = frozenset({"version", "validate", "show", "output", "providers", "graph"})
TERRAFORM_CHANGES = names(
    "plan apply init import taint untaint refresh get workspace force-unlock test"
)


def ansible(argv: tuple[Word, ...]) -> Understanding | None:
    """A check runs modules on the hosts too; what it will do stands in files."""
    if argv[1:] == ("--version",):
        return looks(argv)
    return Understanding(
        action=str(argv[0]),
        arguments=argv[1:],
        level=FULL,
        doors=frozenset({SSH, NETWORK}),
        needs_agent=True,
        why="acts on many hosts",
    )


def ansible_reads(argv: tuple[Word, ...]) -> Understanding | None:
    """An inventory may be a program."""
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
