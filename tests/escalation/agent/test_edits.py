"""Edits in the stream: only those that the CLI confirms."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escalation.agent.stream import LONGEST_DIFF, Edit, RecordedLine, edits_in, is_cut
from tests.tables import each_row

NOW = datetime(2026, 11, 17, tzinfo=UTC)


def call(tool: str = "Edit", number: str = "toolu_1", **given: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": number, "name": tool, "input": given}
    return {"type": "assistant", "message": {"content": [block]}}


def result(
    number: str = "toolu_1",
    *,
    is_error: bool = False,
    told: Any = None,
    name: str = "tool_use_result",
) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": number, "is_error": is_error}
    return {"type": "user", "message": {"content": [block]}, name: told}


def heard(*lines: Any) -> list[Edit]:
    return edits_in([RecordedLine(payload=line, at=NOW) for line in lines])


REPLACED = call(file_path="/srv/a.conf", old_string="one\ntwo\nthree", new_string="one\n2\nthree")
PATCH = [
    {"oldStart": 4, "oldLines": 2, "newStart": 4, "newLines": 2, "lines": [" one", "-two", "+2"]}
]


def test_an_edit_is_a_diff_of_what_it_replaced():
    (edit,) = heard(REPLACED, result())

    assert (edit.call, edit.tool, edit.path, edit.at) == ("toolu_1", "Edit", "/srv/a.conf", NOW)
    assert edit.action == "edit /srv/a.conf"
    assert edit.diff == "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"


@pytest.mark.parametrize("name", ["tool_use_result", "toolUseResult"])
def test_the_patch_of_the_cli_is_preferred(name):
    (edit,) = heard(REPLACED, result(told={"structuredPatch": PATCH}, name=name))

    assert edit.diff == "@@ -4,2 +4,2 @@\n one\n-two\n+2"


def test_a_new_file_is_all_added():
    (edit,) = heard(call("Write", file_path="/srv/new", content="a\nb\n"), result())

    assert edit.action == "write /srv/new"
    assert edit.diff == "@@ -0,0 +1,2 @@\n+a\n+b"


def test_an_overwritten_file_shows_its_earlier_content():
    told = {"originalFile": "a\n", "structuredPatch": []}

    (edit,) = heard(call("Write", file_path="/srv/x", content="b\n"), result(told=told))

    assert edit.diff == "@@ -1 +1 @@\n-a\n+b"


def test_a_notebook_cell_and_several_edits_are_read():
    cell = call("NotebookEdit", "t1", notebook_path="/srv/n.ipynb", new_source="x = 1")
    several = call(
        "MultiEdit",
        "t2",
        file_path="/srv/m",
        edits=[{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "d"}],
    )

    first, second = heard(cell, several, result("t1"), result("t2"))

    assert (first.path, first.diff) == ("/srv/n.ipynb", "@@ -0,0 +1 @@\n+x = 1")
    assert second.diff.count("@@ -1 +1 @@") == 2


@each_row(
    "lines",
    [
        (REPLACED,),
        (REPLACED, result(is_error=True)),
        (result(), REPLACED),
        (call("Read", file_path="/srv/a"), result()),
        (call("Bash", command="touch a"), result()),
    ],
)
def test_a_failed_or_denied_call_is_no_edit(lines):
    assert heard(*lines) == []


def test_a_repeated_line_is_one_edit():
    assert len(heard(REPLACED, REPLACED, result(), result())) == 1


def test_a_long_diff_is_shortened_with_a_note():
    (edit,) = heard(call("Write", file_path="/x", content="line\n" * 50_000), result())
    (short,) = heard(REPLACED, result())

    assert len(edit.diff) < LONGEST_DIFF + 100
    assert (is_cut(edit.diff), is_cut(short.diff)) == (True, False)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "message", "content", "input", "id", "name", "edits", "structuredPatch"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(lines=st.lists(ANYTHING, max_size=4), given_input=ANYTHING, told=ANYTHING)
def test_malformed_lines_never_raise(lines, given_input, told):
    block = {"type": "tool_use", "id": "t", "name": "Edit", "input": given_input}
    begun = {"type": "assistant", "message": {"content": [block]}}

    assert len(heard(*lines, begun, result("t", told=told))) == 1
