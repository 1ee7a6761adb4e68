"""Redirections: which files they write, and what a command reads through them."""

from __future__ import annotations

import re

from tree_sitter import Node

from escalation.gate.syntax import Syntax
from escalation.gate.understanding import Word
from escalation.gate.words import Problem

_HARMLESS_TARGETS = re.compile(r"/dev/(null|stdout|stderr|fd/[012]|tty)")
_NETWORK = re.compile(r"/+dev/+(tcp|udp)(/|$)")
_WRITE = {">", ">>", ">|", "&>", "&>>", ">&"}
_BEFORE_A_NUMBER = {"", " ", "\t", "\n", ";", "&", "|", "(", ")", "}"}
_DELIMITER = re.compile(r"(['\"\\]?)([A-Za-z_][A-Za-z0-9_.-]*)(['\"]?)")
_EXPANDED_UNSEEN = re.compile(r"(?<!\\)(?:\\\\)*(?:\$[\w({\[@*#?$!-]|`)")


def decoded(field: Word) -> Word:
    """From one character for each byte back to characters."""
    return field if field is None else field.encode("latin-1").decode(errors="surrogateescape")


def read_redirects(
    redirects: list[Node], syntax: Syntax, stdin: Word
) -> tuple[tuple[Word, ...], Word]:
    """The files that are written, and what is read in the end."""
    writes: list[Word] = []
    for redirect in sorted(redirects, key=lambda redirect: redirect.start_byte):
        text = redirect.type in {"heredoc_redirect", "herestring_redirect"}
        if text and redirect.child_by_field_name("descriptor") is not None:
            raise Problem("a text for another descriptor than the first")
        if redirect.type == "heredoc_redirect":
            stdin = decoded(_here_document(redirect, syntax))
        elif redirect.type == "herestring_redirect":
            syntax.check_divided(redirect.named_children[-1])
            values = syntax.literal(redirect.named_children[-1])
            stdin = decoded(values[0] + "\n") if values and len(values) == 1 else None
        elif redirect.type == "file_redirect":
            stdin = _file(redirect, syntax, writes, stdin)
    return tuple(writes), stdin


def _file(redirect: Node, syntax: Syntax, writes: list[Word], stdin: Word) -> Word:
    begin = redirect.start_byte
    numbered = redirect.child_by_field_name("descriptor") is not None
    if numbered and syntax.source[max(0, begin - 1) : begin] not in _BEFORE_A_NUMBER:
        raise Problem("words that are not clearly divided")
    operator = next(child.type for child in redirect.children if not child.is_named)
    targets = redirect.children_by_field_name("destination")[:1]
    for target_node in targets:
        syntax.check_divided(target_node)
    for fields in syntax.alternatives(targets[0]) if targets else ():
        target = decoded(fields[0]) if len(fields) == 1 else None
        if target is not None and _NETWORK.match(target):
            raise Problem("a network connection of the shell itself")
        if operator not in {*_WRITE, "<", "<&"}:
            raise Problem(f"the redirection `{operator}`")
        duplicates = operator == ">&" and target is not None and re.fullmatch(r"\d+-?|-", target)
        harmless = target is not None and _HARMLESS_TARGETS.fullmatch(target)
        if operator in _WRITE and not duplicates and not harmless:
            writes.append(target)
        if operator == "<" and target is None:
            # bash itself connects to /dev/tcp/HOST/PORT, and another word can then write there.
            syntax.unseen["a file whose name is computed is opened"] = None
        if operator == "<" and target == "/dev/null":
            return ""
    return None if operator in {"<", "<&"} else stdin


def _here_document(redirect: Node, syntax: Syntax) -> Word:
    """Its text, once it is sure that bash sees it begin and end where the parser does."""
    parts = {child.type: child for child in redirect.children}
    start, body, end = (parts.get(f"heredoc_{name}") for name in ("start", "body", "end"))
    if start is None or body is None or end is None:
        raise Problem("a here-document without an end")
    delimiter = _DELIMITER.fullmatch(syntax.text_of(start))
    if delimiter is None or (delimiter[1] in {"'", '"'} and delimiter[1] != delimiter[3]):
        raise Problem("such a here-document")
    line_end = syntax.source.find("\n", start.end_byte)
    text_end = syntax.source.rfind("\n", 0, end.start_byte) + 1
    text = syntax.source[line_end + 1 : text_end]
    lines = syntax.source[line_end + 1 :].split("\n")
    strips_tabs = redirect.children[0].type == "<<-" or syntax.text_of(redirect).startswith("<<-")
    if strips_tabs:
        lines = [line.lstrip("\t") for line in lines]
    line = syntax.source[start.end_byte : line_end]
    goes_on = line.count("'") % 2 or line.count('"') % 2 or line.count("(") > line.count(")")
    same_line = "<<" in line or line.endswith("\\") or goes_on
    first_end = lines.index(delimiter[2]) if delimiter[2] in lines else -1
    if line_end < 0 or same_line or first_end != text.count("\n"):
        raise Problem("such a here-document")
    if strips_tabs:
        text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
    return text if delimiter[1] else _expanded(body, text, syntax)


def _expanded(body: Node, text: str, syntax: Syntax) -> Word:
    """An unquoted here-document: variables, substitutions and some backslashes mean something."""
    if body.named_children and any(
        not child.type.startswith("heredoc_") for child in body.children
    ):
        holes = [child for child in body.children if not child.type.startswith("heredoc_")]
        seen = sum(1 for _ in _EXPANDED_UNSEEN.finditer(text))
        if seen != len(holes) or "`" in text:
            raise Problem("a here-document with expansions that are not followed here")
        return None
    if _EXPANDED_UNSEEN.search(text):
        raise Problem("a here-document with expansions that are not followed here")
    return re.sub(r"\\([$`\\]|\n)", lambda found: found[1].strip("\n"), text)
