"""kubectl and helm. No filter checks their requests, so every word has to be known."""

from __future__ import annotations

import re

from escalation.command_policy.grants import KUBE, NETWORK
from escalation.command_policy.programs.options import Grammar, acts, literal, names, read, writes
from escalation.command_policy.understanding import (
    FULL,
    LOOK,
    NEVER,
    SAFE,
    Inner,
    Understanding,
    Word,
)

# Left out: --kubeconfig (it may name programs), --server, --token, --as …: another's rights.
# In front of the verb only what kubectl itself knows there: it would take the verb for the value of
# any other option.
BEFORE_THE_VERB = "-n= --namespace= --context= --cluster= --request-timeout= -v= --v="
KUBECTL = """
    -n= --namespace= --context= --cluster= --request-timeout= -v= --v= -o= --output= -l=
    --selector= -A --all-namespaces -w --watch --watch-only --show-labels --no-headers --sort-by=
    --field-selector= -c= --container= -f= --filename= --follow --tail= --since= --since-time= -p
    --previous --timestamps --all-containers? --prefix --limit-bytes= --max-log-requests=
    --ignore-not-found --show-kind --containers --timeout= --replicas= --current-replicas=
    --to-revision= --revision= --for= --grace-period= --force --now --all --cascade= --wait?
    --dry-run? --show-events? --recursive -R --api-group= --namespaced? --verbs= --api-version=
    --short --client --raw= --chunk-size= -L= --label-columns= --subresource= --list --minify
    --flatten -q --quiet --types= -i -t -it --stdin --tty --overwrite --record? --type= --patch=
    --image= --port= --from-literal= --min= --max= --cpu-percent= --ignore-daemonsets
    --delete-emptydir-data --disable-eviction --pod-selector= -k= --server-side --prune
    --field-manager= --restart= --rm --env= --labels= --command --address=
"""
FROM_A_FILE = re.compile(r"=?[\w-]*file")
"""A template from a file could show the kubeconfig."""
LOOKS = names("""
    get describe logs top explain api-resources api-versions version cluster-info events wait
    auth options
""")
CHANGES = names("""
    apply create delete patch set label annotate drain taint run expose replace autoscale cordon
    uncordon scale port-forward proxy attach cp certificate
""")
SAFE_CHANGES = frozenset({"scale", "cordon", "uncordon"})
ROLLOUT = {
    "status": LOOK,
    "history": LOOK,
    "restart": SAFE,
    "pause": SAFE,
    "resume": SAFE,
    "undo": FULL,
}
SECRETS = frozenset({"secret", "secrets"})
PODS = frozenset({"pod", "pods", "po"})
LASTING = names("""
    namespace namespaces ns pv persistentvolume persistentvolumes pvc persistentvolumeclaim
    persistentvolumeclaims crd customresourcedefinition customresourcedefinitions node nodes no
    all
""")
WHY = {
    LOOK: "",
    SAFE: "restarts or scales a workload",
    FULL: "changes the cluster",
    NEVER: "removes what holds data or the cluster itself",
}


def kubectl(argv: tuple[Word, ...]) -> Understanding | None:
    words = literal(argv[1:])
    if words is None:
        return None
    before, command = _at_dashes(words)
    opening = read(before, BEFORE_THE_VERB, to_operand=True)
    line = read(before, KUBECTL)
    operands = literal(line.operands) if line else None
    if line is None or opening is None or not operands or operands[:1] != opening.operands[:1]:
        return None
    if any(map(FROM_A_FILE.match, literal(line.values("-o", "--output")) or ())):
        return None
    verb, rest = operands[0], operands[1:]
    if verb == "exec":
        return _executes(rest, command)
    if command:
        return None
    if verb in ("rollout", "config"):
        return _grouped(verb, rest, raw=line.has("--raw"))
    if verb not in LOOKS | CHANGES or (verb == "cp" and not _comes_here(rest)):
        return None
    level = _level(verb, rest, sweeping=line.has("--all", "-A", "--all-namespaces"))
    named_in_files = line.has("-f", "--filename", "-k") and verb != "logs"
    if named_in_files or any(map(_hides_a_secret, line.values("--raw"))):
        level = max(level, FULL)
    return _answer(f"kubectl {verb}", words, level)


def _comes_here(words: tuple[str, ...]) -> bool:
    """Return whether cp copies from a container; the other way could send the kubeconfig."""
    return len(words) == 2 and ":" in words[0] and ":" not in words[1]


def _at_dashes(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if "--" not in words:
        return words, ()
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _answer(action: str, words: tuple[str, ...], level: int) -> Understanding:
    verb = action.split()[1]
    rest = words[words.index(verb) + 1 :]
    return acts(action, rest, level, WHY[level], KUBE, NETWORK)


def _level(verb: str, rest: tuple[str, ...], *, sweeping: bool) -> int:
    kinds = {kind.split(".")[0] for word in rest for kind in word.split("/")[0].lower().split(",")}
    if verb == "get":
        return FULL if kinds & SECRETS else LOOK
    if verb == "cluster-info" and rest:
        return FULL
    if verb == "auth":
        return LOOK if rest[:1] in (("can-i",), ("whoami",)) else FULL
    if verb in LOOKS:
        return LOOK
    if verb == "delete":
        if kinds & LASTING or sweeping:
            return NEVER
        named = {word.split("/")[0].lower() for word in rest if "/" in word} | set(rest[:1])
        only_pods = bool(rest) and all(word.split("/")[0].lower() in PODS for word in named)
        return SAFE if only_pods else FULL
    return SAFE if verb in SAFE_CHANGES and not sweeping else FULL


def _hides_a_secret(path: Word) -> bool:
    return path is None or "secret" in path or "%" in path


def _grouped(verb: str, rest: tuple[str, ...], *, raw: bool) -> Understanding | None:
    if not rest:
        return None
    if verb == "rollout":
        level = ROLLOUT.get(rest[0])
    else:
        looking = ("view", "current-context", "get-contexts", "get-clusters", "get-users")
        level = (FULL if raw else LOOK) if rest[0] in looking else None
    if level is None:
        return None
    return acts(f"kubectl {verb} {rest[0]}", rest[1:], level, WHY[level], KUBE, NETWORK)


def _executes(rest: tuple[str, ...], command: tuple[str, ...]) -> Understanding | None:
    """Read exec with `--`: the older form mixes the options of both programs."""
    if not command or len(rest) != 1:
        return None
    return Understanding(
        action="kubectl exec",
        arguments=(*rest, *command),
        level=FULL,
        grants=frozenset({KUBE, NETWORK}),
        inner=(Inner(argv=command, elsewhere=True),),
        why="runs a program inside a container",
    )


# Left out: --kubeconfig, --kube-apiserver, --kube-token …, --post-renderer (a program).
HELM = """
    -n= --namespace= --kube-context= -A --all-namespaces -o= --output= -a --all --debug -q --short
    --revision= --max= --filter= --deployed --failed --pending --superseded --uninstalled -f=
    --values= --set= --set-string= --set-file= --version= --wait --atomic --timeout= -i --install
    --create-namespace --reuse-values --reset-values --reset-then-reuse-values --dry-run? --force
    --no-hooks --keep-history --cleanup-on-fail --description= --repo= --devel -l --versions -r
    --date -d -m= --selector= --skip-crds --show-only= --include-crds --generate-name -g --strict
    --history-max= --show-resources --show-desc --wait-for-jobs --dependency-update --template=
"""
HELM_LEVELS = {
    **dict.fromkeys(names("list ls status get history hist version search show inspect env"), LOOK),
    **dict.fromkeys(["template", "lint"], LOOK),
    **dict.fromkeys(
        names("upgrade install rollback uninstall delete del un test repo dependency pull fetch"),
        FULL,
    ),
}
HELM_WITHOUT_CLUSTER = names("template lint show inspect search env")
"""They show files of a chart, so they get no keys."""


def helm(argv: tuple[Word, ...]) -> Understanding | None:
    opening = read(argv[1:], "-n= --namespace= --kube-context= --debug", to_operand=True)
    line = read(argv[1:], HELM)
    operands = literal(line.operands) if line else None
    if line is None or opening is None or line.unsure or not operands:
        return None
    if opening.operands[:1] != operands[:1]:
        return None
    level = HELM_LEVELS.get(operands[0])
    if level is None:
        return None
    if operands[0] in ("pull", "fetch"):
        return writes("helm pull", operands[1:], (".",), NETWORK)
    if operands[0] == "version":
        return acts("helm version", operands[1:], LOOK, "")
    grants = (NETWORK,) if operands[0] in HELM_WITHOUT_CLUSTER else (KUBE, NETWORK)
    return acts(f"helm {operands[0]}", operands[1:], level, WHY[level], *grants)


GRAMMARS: dict[str, Grammar] = {"kubectl": kubectl, "helm": helm}
