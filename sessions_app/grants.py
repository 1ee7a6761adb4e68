"""Syntax of grants: `docker -ssh write:/srv/app http:nas.lan`; a minus revokes a grant."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from difflib import get_close_matches

GRANTS = ("docker", "network", "processes", "ssh", "bus", "kube", "host")
_PATHS = ("write", "read")
_HOST = re.compile(
    r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?(:[0-9]{1,5})?|\[[0-9a-fA-F:]+\](:[0-9]{1,5})?"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class GrantOption:
    """One grant as an operator writes it."""

    kind: str
    """Name of a grant, "write", "read" or "http"."""
    path: str = ""
    """The path of "write" and "read"; the host of "http"."""
    removes: bool = False


def parse_grants(text: str) -> tuple[tuple[GrantOption, ...], tuple[str, ...]]:
    """Return the valid options, and a message for each invalid one."""
    wishes, problems = [], []
    for word in text.replace(",", " ").split():
        removes, plain = word.startswith("-"), word.removeprefix("-")
        kind, colon, path = plain.partition(":")
        if kind in _PATHS:
            problem = _problem_of_path(kind, path)
            path = posixpath.normpath(path) if path else path
        elif kind == "http":
            problem = "" if _HOST.fullmatch(path) else _problem_of_host(path)
        elif plain in GRANTS:
            problem = ""
        else:
            problem = _unknown(plain)
        if problem:
            problems.append(problem)
        else:
            wishes.append(GrantOption(kind=kind, path=path, removes=removes))
    return tuple(wishes), tuple(problems)


def _problem_of_path(kind: str, path: str) -> str:
    if not path.startswith("/"):
        return f"`{kind}:{path}` is no absolute path: write it as `{kind}:/srv/app`."
    if "\0" in path or ".." in path.split("/"):
        return f"`{kind}:{path}` goes through `..`: name the directory itself."
    if posixpath.normpath(path).lstrip("/") == "":
        return f"`{kind}:{path}` would grant the whole file system: name a directory in it."
    return ""


def _problem_of_host(host: str) -> str:
    return f"`http:{host}` names no host: write it as `http:nas.lan` or `http:*.example.org:8443`."


def _unknown(word: str) -> str:
    near = get_close_matches(word, (*GRANTS, "write:", "read:", "http:"), n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}`?" if near else f"grants are {', '.join(GRANTS)}, write:/PATH"
    return f"`{word}` is no grant: {hint}"
