"""docker, podman, kubectl, helm, ansible and terraform.

In the command sandbox docker, kubectl and helm run unjudged, because filters judge their requests.
Their vectors are read for other hosts, for drills, and where there is no sandbox.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace

from escalation.command_policy.grants import DOCKER, HOST, KUBE, NETWORK, SSH
from escalation.command_policy.programs.options import (
    Grammar,
    Line,
    acts,
    by_level,
    looks,
    names,
    read,
    require,
)
from escalation.command_policy.understanding import (
    FULL,
    LOOK,
    NEVER,
    OTHER,
    REDEPLOY,
    RESTART,
    SAFE,
    Argv,
    NotUnderstood,
    Understanding,
)

# Left out: -H and --tls… (another host's engine) and --config (which may name programs).
GLOBAL = "-D --debug -c= --context= -l= --log-level= -v --version"
DOCKER_VERBS = by_level(
    {
        LOOK: """
            ps logs inspect top stats port diff images history version info search events
            network:ls network:inspect volume:ls volume:inspect image:inspect system:df context:ls
            context:show service:ls service:ps service:inspect service:logs stack:ls stack:ps
            stack:services node:ls
        """,
        SAFE: "start stop restart kill",
        FULL: """
            run create exec cp rm rmi pull push build tag rename update commit load import pause
            unpause wait attach network:create network:rm network:connect network:disconnect
            service:update service:scale service:rollback stack:deploy
        """,
        NEVER: """
            system:prune volume:rm volume:prune volume:create container:prune image:prune
            network:prune builder:prune buildx:prune swarm:leave service:rm stack:rm node:rm
        """,
    }
)
SAME = {
    **dict.fromkeys(("container:ls", "container:list", "container:ps"), "ps"),
    **dict.fromkeys(("image:ls", "image:list"), "images"),
    **dict.fromkeys(("image:rm", "image:remove"), "rmi"),
    "container:remove": "rm",
    "builder:build": "build",
    "stack:up": "stack:deploy",
    "stack:down": "stack:rm",
    **{f"{group}:list": f"{group}:ls" for group in ("network", "volume", "service")},
    **{f"{group}:remove": f"{group}:rm" for group in ("network", "volume", "service", "stack")},
    **{f"container:{verb}": verb for verb in DOCKER_VERBS if ":" not in verb},
    **{f"image:{verb}": verb for verb in names("history build tag load import push pull")},
    **{f"system:{verb}": verb for verb in ("info", "events")},
}
GROUPS = frozenset(verb.partition(":")[0] for verb in (*DOCKER_VERBS, *SAME) if ":" in verb)
COUNTED = {
    # verb: its options, and the kind of the change
    "start": ("-a -i --attach? --interactive? --detach-keys=", RESTART),
    "restart": ("-t= --time= --timeout= -s= --signal=", RESTART),
    "kill": ("-s= --signal=", RESTART),
    "stop": ("-t= --time= --timeout= -s= --signal=", OTHER),
    "unpause": ("", RESTART),
    "rm": ("-f -l -v --force --link --volumes?", OTHER),
    "service:update": (
        "-d -q --detach? --quiet --force --image= --replicas= --rollback --with-registry-auth"
        " --env-add= --env-rm= --limit-memory= --limit-cpu= --restart-condition=",
        REDEPLOY,
    ),
    "stack:deploy": ("-c= -d -q --compose-file= --prune --with-registry-auth --detach?", REDEPLOY),
}
DOCKER_WHY = {
    LOOK: "",
    SAFE: "restarts or stops a container",
    FULL: "changes containers or images",
    NEVER: "destroys data, or reaches beyond its container",
}
ELSEWHERE_OF_CLIENT = re.compile(r"-H|--host|--tls|--config|-o|--output")
"""Options of a look that name another engine, or a file to write."""
EXEC = """
    -d -i -t -T -e= -u= -w= --detach --interactive --tty --no-TTY --env= --user= --workdir=
    --index= --detach-keys=
"""


def docker(argv: Argv) -> Understanding:
    line = read(argv[1:], GLOBAL, to_operand=True)
    if line.has("-v", "--version") or not line.operands:
        return acts("docker version", argv[1:], LOOK, "", DOCKER)
    if line.operands[0] == "compose":
        return compose(line.operands[1:])
    verb, rest = _verb_of(line.operands)
    level = DOCKER_VERBS.get(verb)
    if level is None:
        raise NotUnderstood(f"`{verb.replace(':', ' ')}`")
    if verb == "exec":
        return _executes("docker exec", rest, DOCKER)
    if verb in ("run", "create"):
        return _runs_container(f"docker {verb}", rest)
    action = f"docker {verb.replace(':', ' ')}"
    if level == LOOK:
        _check_look(rest)
    if verb not in COUNTED:
        return acts(action, rest, level, DOCKER_WHY[level], DOCKER)
    options, kind = COUNTED[verb]
    line = read(rest, options)
    if verb == "start" and line.options:
        level = FULL
    if verb == "rm" and line.has("-v", "--volumes"):
        level = NEVER
    services = line.operands[-1:] if verb == "stack:deploy" else line.operands
    found = acts(action, rest, level, DOCKER_WHY[level], DOCKER)
    return replace(found, kind=kind, services=services)


def _check_look(rest: Argv) -> None:
    if found := next(filter(ELSEWHERE_OF_CLIENT.match, rest), ""):
        raise NotUnderstood(f"the option {found}")


def _verb_of(words: Argv) -> tuple[str, Argv]:
    """Return the short name of a verb: `restart` for `container restart`."""
    if words[0] not in GROUPS:
        return words[0], words[1:]
    both = ":".join(words[:2])
    return SAME.get(both, both), words[2:]


def _executes(action: str, rest: Argv, grant: str) -> Understanding:
    """Read exec; `--privileged` is not among the known options."""
    line = read(rest, EXEC, to_operand=True)
    if len(line.operands) < 2:
        raise NotUnderstood("no command")
    found = acts(action, rest, FULL, "runs a program inside a container", grant)
    return replace(found, inner=(line.operands[1:],), elsewhere=True)


# `docker run` and `docker create`. Left out: privileges, capabilities, devices and namespaces.

RUN = """
    -d -i -t -a= -e= -h= -l= -m= -p= -P -q -u= -v= -w= --detach --interactive --tty --attach=
    --env= --env-file= --hostname= --label= --memory= --memory-swap= --publish= --publish-all
    --quiet --user= --volume= --workdir= --rm --name= --network= --net= --network-alias=
    --restart= --entrypoint= --tmpfs= --cpus= --cpu-shares= --pull= --platform= --init --read-only
    --link= --expose= --dns= --add-host= --ip= --log-driver= --log-opt= --ulimit= --shm-size=
    --stop-signal= --stop-timeout= --health-cmd= --health-interval= --health-retries=
    --health-timeout= --no-healthcheck --cap-drop= --volumes-from= --pids-limit= --service-ports
    --no-deps --use-aliases -T --no-TTY --build --remove-orphans
"""
DATA = re.compile(r"/(?:srv|opt|data|mnt|media|tmp)/.|/(?:home|var/log|var/www)/[^/]+/.")
"""Directories that a container may be given."""


def _runs_container(action: str, rest: Argv) -> Understanding:
    line = read(rest, RUN, to_operand=True)
    if not line.operands:
        raise NotUnderstood("no image")
    volumes = [value.removeprefix("=") for value in line.values("-v", "--volume")]
    level, why = FULL, "starts a new container"
    if not all(_is_data(volume.split(":")[0]) for volume in volumes):
        level, why = NEVER, "would hand the host to a container"
    named = line.values("--name")
    found = acts(action, rest, level, why, DOCKER)
    return replace(found, kind=REDEPLOY, services=named) if named else found


def _is_data(source: str) -> bool:
    """Accept a named volume, a path below the working directory, or files of services."""
    if source.startswith(("~", "$")) or ".." in source.split("/"):
        return False
    if not source.startswith("/"):
        return True
    path = posixpath.normpath(source).replace("//", "/")
    return bool(DATA.match(path)) and not path.endswith(".sock") and "/." not in path


# docker compose, as a plugin and as the older program of its own.

COMPOSE_GLOBAL = """
    -f= --file= -p= --project-name= --profile= --env-file= --project-directory= --ansi= --progress=
    --parallel= --compatibility --dry-run --all-resources --verbose -v --version
"""
COMPOSE_VERBS = by_level(
    {
        LOOK: "ps logs config convert images top ls events port version stats",
        SAFE: "start stop restart kill",
        FULL: """
            up down pull push build create rm run exec pause unpause cp scale attach commit export
            wait
        """,
    }
)
UP = """
    -d -t= -y --detach --build --force-recreate --no-recreate --no-build --no-start --no-deps
    --pull= --quiet-pull --remove-orphans --scale= --timeout= --wait --wait-timeout= --attach=
    --no-attach= --abort-on-container-exit --exit-code-from= --no-color --no-log-prefix
    --always-recreate-deps --yes
"""
AGAIN = "-t= --timeout= -s= --signal= --no-deps --remove-orphans --wait --wait-timeout="
COMPOSE_COUNTED = {
    **dict.fromkeys(("restart", "start", "kill", "unpause"), (AGAIN, RESTART)),
    "stop": (AGAIN, OTHER),
    **dict.fromkeys(("up", "create"), (UP, REDEPLOY)),
    "down": ("-t= --timeout= --remove-orphans --rmi= -v --volumes", OTHER),
    "rm": ("-f -s --force --stop -v --volumes", OTHER),
}
COMPOSE_WHY = {
    LOOK: "",
    SAFE: "restarts or stops containers",
    FULL: "changes a whole stack",
    NEVER: "removes volumes with their data",
}


def compose(words: Argv) -> Understanding:
    line = read(words, COMPOSE_GLOBAL, to_operand=True)
    verb, rest = (line.operands or ("version",))[0], line.operands[1:]
    level = COMPOSE_VERBS.get(verb)
    if level is None:
        raise NotUnderstood(f"`{verb}`")
    action = f"docker compose {verb}"
    if verb == "exec":
        return _executes(action, rest, DOCKER)
    if verb == "run":
        return _runs_container(action, rest)
    if level == LOOK:
        _check_look(rest)
    options, kind = COMPOSE_COUNTED.get(verb, ("", OTHER))
    line = read(rest, options) if verb in COMPOSE_COUNTED else Line((), (), False)
    if verb in ("down", "rm") and line.has("-v", "--volumes"):
        level = NEVER
    found = acts(action, rest, level, COMPOSE_WHY[level], DOCKER)
    return replace(found, kind=kind, services=line.operands)


PODMAN = names("ps logs inspect top stats port images start stop restart kill")
# Left out: options of podman itself, which may stand anywhere and name programs.
PODMAN_LOOKS = """
    -a -q -n= -s -t -f= --all --quiet --last= --size --timestamps --format= --filter=
    --tail= --since= --until= --names --no-trunc --no-stream
"""


def podman(argv: Argv) -> Understanding:
    """Read podman, which has no engine to filter, with verbs that write no file."""
    verb = " ".join(argv[1:2])
    if verb not in PODMAN:
        raise NotUnderstood(f"`{verb}`")
    if verb not in COUNTED:
        read(argv[2:], PODMAN_LOOKS)
    return replace(docker(argv), action=f"podman {verb}", grant=HOST)


# kubectl and helm.

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
# `-f` of logs stands alone; it would take the next word for a file.
LOGS = KUBECTL.replace(" -f=", " -f").replace(" --filename=", "")
FROM_A_FILE = re.compile(r"(?!=?[\w-]*file).*", re.DOTALL)
"""A template from a file could show the kubeconfig."""
KUBECTL_VERBS = by_level(
    {
        LOOK: """
            get describe logs top explain api-resources api-versions version cluster-info events
            wait auth options rollout:status rollout:history config:current-context config:view
            config:get-contexts config:get-clusters config:get-users
        """,
        SAFE: "scale delete cordon uncordon rollout:restart rollout:pause rollout:resume",
        FULL: """
            apply create patch set:image set:env set:resources label annotate drain taint run
            expose replace autoscale port-forward rollout:undo certificate
        """,
    }
)
KUBE_GROUPS = frozenset({"rollout", "config", "set"})
KUBE_RESTARTS = names("rollout:restart scale")
KUBE_DEPLOYS = names("rollout:undo set:image set:env apply replace patch create")
SECRETS = frozenset({"secret", "secrets"})
PODS = frozenset({"pod", "pods", "po"})
LASTING = names("""
    namespace namespaces ns pv persistentvolume persistentvolumes pvc persistentvolumeclaim
    persistentvolumeclaims crd customresourcedefinition customresourcedefinitions node nodes no
    all
""")
KUBE_WHY = {
    LOOK: "",
    SAFE: "restarts or scales a workload",
    FULL: "changes the cluster",
    NEVER: "removes what holds data or the cluster itself",
}


def kubectl(argv: Argv) -> Understanding:
    words = argv[1:]
    before = words[: words.index("--")] if "--" in words else words
    opening = read(before, BEFORE_THE_VERB, to_operand=True).operands
    if not opening:
        raise NotUnderstood("no verb")
    line = read(before, LOGS if opening[0] == "logs" else KUBECTL)
    require(line.values("-o", "--output"), FROM_A_FILE)
    if line.operands[:1] != opening[:1]:
        raise NotUnderstood("an option before the verb")
    if opening[0] == "exec":
        return _kube_exec(line.operands[1:], words[len(before) + 1 :])
    count = 2 if opening[0] in KUBE_GROUPS else 1
    verb, rest = ":".join(line.operands[:count]), line.operands[count:]
    level = KUBECTL_VERBS.get(verb)
    if level is None or before != words:
        raise NotUnderstood(f"`{verb.replace(':', ' ')}`")
    level = max(level, _kube_level(verb, rest, line))
    action = f"kubectl {verb.replace(':', ' ')}"
    options = opening[opening.index(line.operands[count - 1]) + 1 :]
    found = acts(action, options, level, KUBE_WHY[level], KUBE)
    kind, services = _kube_effect(verb, rest, line)
    return replace(found, kind=kind, services=services)


def _kube_exec(rest: Argv, command: Argv) -> Understanding:
    """Read exec with `--`: the older form mixes the options of both programs."""
    if not command or len(rest) != 1:
        raise NotUnderstood("exec without `--`")
    found = acts("kubectl exec", (*rest, *command), FULL, "runs a program inside a container", KUBE)
    return replace(found, inner=(command,), elsewhere=True)


def _kube_level(verb: str, rest: Argv, line: Line) -> int:
    kinds = _kinds(rest)
    sweeping = line.has("--all", "-A", "--all-namespaces")
    if any("secret" in path or "%" in path for path in line.values("--raw")):
        return FULL
    if line.has("-f", "--filename", "-k") and verb != "logs":
        return FULL
    match verb:
        case "get" | "describe":
            return FULL if _any_kind(rest) & SECRETS else LOOK
        case "cluster-info":
            return FULL if rest else LOOK
        case "auth":
            return LOOK if rest[:1] in (("can-i",), ("whoami",)) else FULL
        case "config:view":
            return FULL if line.has("--raw") or line.has("--flatten") else LOOK
        case "delete":
            if _any_kind(rest) & LASTING or sweeping:
                return NEVER
            return LOOK if kinds <= PODS else FULL
    return FULL if sweeping and KUBECTL_VERBS[verb] > LOOK else LOOK


def _kinds(rest: Argv) -> set[str]:
    """Return the kinds of `pod/web deploy/db` or `pod web`."""
    return {word.split("/")[0].lower() for word in rest if "/" in word} | set(rest[:1]) - {
        word for word in rest if "/" in word
    }


def _any_kind(rest: Argv) -> set[str]:
    """Return all words that may be a kind: `pods,secrets`, `secret/x`, `secrets.v1`."""
    return {kind.split(".")[0] for word in rest for kind in word.split("/")[0].lower().split(",")}


def _kube_effect(verb: str, rest: Argv, line: Line) -> tuple[str, Argv]:
    if verb == "delete" and _kinds(rest) and _kinds(rest) <= PODS:
        return RESTART, _kube_names(rest)
    if verb not in KUBE_RESTARTS | KUBE_DEPLOYS:
        return OTHER, ()
    files = tuple(_stem(path) for path in line.values("-f", "--filename", "-k"))
    kind = RESTART if verb in KUBE_RESTARTS else REDEPLOY
    return kind, files or _kube_names(tuple(word for word in rest if "=" not in word))


def _kube_names(words: Argv) -> Argv:
    """Return the names of `deployment/web` or `deployment web`."""
    return tuple(word for word in words if "/" in word) or words[1:] or words


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0] or path


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
HELM_VERBS = by_level(
    {
        LOOK: "list ls status get history hist version search show inspect env template lint",
        FULL: "upgrade install rollback uninstall delete del un test repo dependency pull fetch",
    }
)
HELM_DEPLOYS = frozenset({"upgrade", "install", "rollback"})


def helm(argv: Argv) -> Understanding:
    opening = read(argv[1:], "-n= --namespace= --kube-context= --debug", to_operand=True).operands
    line = read(argv[1:], HELM)
    verb, rest = " ".join(line.operands[:1]), line.operands[1:]
    level = HELM_VERBS.get(verb)
    if level is None or opening[:1] != (verb,):
        raise NotUnderstood(f"`{verb}`")
    found = acts(f"helm {verb}", rest, level, KUBE_WHY[level], KUBE)
    return replace(found, kind=REDEPLOY, services=rest[:1]) if verb in HELM_DEPLOYS else found


# ansible and terraform.

ANSIBLE = """
    -i= -l= -t= -e= -m= -a= -f= -u= -C -D -b -v --inventory= --limit= --tags= --skip-tags=
    --extra-vars= --module-name= --args= --forks= --user= --check --diff --become --become-user=
    --syntax-check --list-hosts --list-tasks --list-tags --start-at-task= --version
"""
ANSIBLE_SERVICES = frozenset({"service", "systemd", "systemd_service", "sysvinit", "openrc"})
TERRAFORM = by_level(
    {
        LOOK: "version validate show output providers graph state:list state:show",
        FULL: "plan apply init import taint untaint refresh get workspace force-unlock test",
        NEVER: "destroy",
    }
)
TERRAFORM_WHY = {LOOK: "", FULL: "acts on whole systems", NEVER: "takes whole systems down"}


def ansible(argv: Argv) -> Understanding:
    """Read ansible; a check runs modules on the hosts, too."""
    line = read(argv[1:], ANSIBLE)
    if line.has("--version"):
        return looks(argv, SSH)
    kind: str = OTHER
    services: Argv = ()
    if argv[0] == "ansible-playbook":
        kind, services = REDEPLOY, tuple(map(_stem, line.operands))
    module = "".join(line.values("-m", "--module-name")[-1:]).rpartition(".")[2]
    if module == "reboot":
        kind = RESTART
    if module in ANSIBLE_SERVICES:
        words = " ".join(line.values("-a", "--args")).split()
        given = dict(word.partition("=")[::2] for word in words)
        if given.get("state") in ("restarted", "started"):
            named = given.get("name") or given.get("service")
            kind, services = RESTART, (named,) if named else ()
    found = acts(argv[0], argv[1:], FULL, "acts on many hosts", SSH)
    return replace(found, kind=kind, services=services)


def terraform(argv: Argv) -> Understanding:
    line = read(argv[1:], "-chdir= -version --version", to_operand=True)
    count = 2 if line.operands[:1] == ("state",) else 1
    verb, rest = ":".join(line.operands[:count]) or "version", line.operands[count:]
    if any(word.lstrip("-") == "destroy" for word in rest):
        verb = "destroy"
    level = TERRAFORM.get(verb)
    if level is None:
        raise NotUnderstood(f"`{verb}`")
    found = acts(f"{argv[0]} {verb.replace(':', ' ')}", rest, level, TERRAFORM_WHY[level], NETWORK)
    return replace(found, kind=REDEPLOY, services=("terraform",)) if verb == "apply" else found


GRAMMARS: dict[str, Grammar] = {
    "docker": docker,
    "podman": podman,
    "docker-compose": lambda argv: compose(argv[1:]),
    "kubectl": kubectl,
    "helm": helm,
    **dict.fromkeys(("ansible", "ansible-playbook"), ansible),
    **dict.fromkeys(("terraform", "tofu"), terraform),
}
