"""gh and glab."""

from __future__ import annotations

from itertools import pairwise

from escalation.command_policy.grants import NETWORK
from escalation.command_policy.programs.options import Grammar, acts, literal, read
from escalation.command_policy.understanding import FULL, LOOK, NEVER, SAFE, Understanding, Word

LEVELS = {
    LOOK: """
        pr:list pr:view pr:status pr:checks pr:diff issue:list issue:view issue:status run:list
        run:view run:watch release:list release:view repo:view repo:list workflow:list
        workflow:view search:issues search:prs search:repos search:commits search:code label:list
        cache:list variable:list gist:list gist:view org:list ruleset:list ruleset:view
        mr:list mr:view mr:diff ci:list ci:view ci:status ci:trace pipeline:list
    """,
    SAFE: """
        pr:create pr:comment pr:edit pr:close pr:reopen pr:ready issue:create issue:comment
        issue:edit issue:close issue:reopen run:rerun run:cancel label:create
        mr:create mr:note mr:update mr:close issue:note ci:retry
    """,
    FULL: """
        pr:merge pr:review pr:lock pr:update-branch issue:transfer issue:delete issue:pin
        workflow:run workflow:enable workflow:disable release:create release:edit release:upload
        release:delete repo:create repo:edit repo:fork repo:sync label:edit label:delete secret:list
        secret:set variable:set cache:delete gist:create run:delete mr:merge mr:approve
        release:delete-asset
    """,
    NEVER: "repo:delete repo:archive repo:rename secret:delete variable:delete gist:delete",
}
BY_VERB = {verb: level for level, verbs in LEVELS.items() for verb in verbs.split()}
WHY = {
    LOOK: "",
    SAFE: "writes on the forge",
    FULL: "changes what others build on",
    NEVER: "removes what cannot be brought back",
}
API = """
    -X= --method= -H= --header= -q= --jq= -t= --template= --paginate --slurp -i --include --silent
    --cache= -p= --preview= -f= --raw-field= -F= --field= --verbose
"""


def forge(argv: tuple[Word, ...]) -> Understanding | None:
    words = literal(argv[1:])
    if words is None:
        return None
    if any(word.count("/") > 1 for word in _repositories(words)):
        return None
    program, plain = str(argv[0]), _without_repository(words)
    if plain[:1] == ("--version",) or plain[:1] == ("version",):
        return acts(f"{program} version", plain[1:], LOOK, "")
    if plain[:1] == ("api",):
        return api(program, plain[1:])
    if "--web" in plain or "-w" in plain:
        return None
    level = BY_VERB.get(":".join(plain[:2]))
    if level is None:
        return None
    return acts(f"{program} {' '.join(plain[:2])}", plain[2:], level, WHY[level], NETWORK)


def _without_repository(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words without `-R`, which may be before or behind the verb."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if len(kept) < 2 and word in ("-R", "--repo"):
            next(rest, None)
        elif not (len(kept) < 2 and word.startswith(("--repo=", "-R"))):
            kept.append(word)
    return tuple(kept)


def _repositories(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of `-R`; `HOST/OWNER/NAME` could send the token to another host."""
    behind = (after for word, after in pairwise(words) if word in ("-R", "--repo"))
    attached = (word for word in words if word.startswith(("-R", "--repo=")))
    return (*behind, *attached)


def api(program: str, rest: tuple[Word, ...]) -> Understanding | None:
    """Read `api`: fields make it a POST by default; `@file` would send a file."""
    line = read(rest, API)
    if line is None or len(line.operands) != 1 or "://" in (line.operands[0] or ""):
        return None
    fields = line.values("-f", "--raw-field", "-F", "--field")
    headers = line.values("-H", "--header")
    if any("=@" in (field or "") for field in fields) or any("@" in (h or "") for h in headers):
        return None
    overriding = any("override" in (header or "").lower() for header in headers)
    methods = line.values("-X", "--method") or (("POST",) if fields else ("GET",))
    reads = methods[-1] in ("GET", "HEAD", "get", "head") and line.operands[0] != "graphql"
    level = LOOK if reads and not overriding else FULL
    return acts(f"{program} api", rest, level, WHY[level], NETWORK)


GRAMMARS: dict[str, Grammar] = {"gh": forge, "glab": forge}
