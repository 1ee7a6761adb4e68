"""Every link between our documents has a target."""

from __future__ import annotations

import re

from tests.documents import FENCE, ROOT, handbook, name_of
from tests.tables import each_row

# Without those to the web, which no test of ours reaches.
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@each_row("document", DOCUMENTS, ids=name_of)
def test_links_of_a_document_lead_to_files(document):
    named = [file for file, _anchor in LINK.findall(document.read_text())]

    assert [link for link in named if not (document.parent / link).exists()] == []


@each_row("document", DOCUMENTS, ids=name_of)
def test_links_with_an_anchor_lead_to_a_heading(document):
    links = [(file, anchor) for file, anchor in LINK.findall(document.read_text()) if anchor]
    lost = [
        f"{file}#{anchor}"
        for file, anchor in links
        if anchor not in anchors_in((document.parent / file if file else document).read_text())
    ]

    assert lost == []


def anchors_in(text: str) -> list[str]:
    """As GitHub makes them: small letters, no punctuation, hyphens for spaces."""
    headings = HEADING.findall(FENCE.sub("", text))
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_links_are_found():
    text = "[a](docs/x.md) [b](https://x) ![c](y.png#z) [d](#e)"

    assert LINK.findall(text) == [("docs/x.md", ""), ("y.png", "z"), ("", "e")]


def test_anchors_are_derived_from_headings():
    text = "# In a *container*, or not?\n```sh\n# a comment\n```\n## The key\n"

    assert anchors_in(text) == ["in-a-container-or-not", "the-key"]


def test_every_page_of_the_handbook_is_linked_from_the_readme():
    linked = {(ROOT / file).resolve() for file, _anchor in LINK.findall(handbook()[0].read_text())}

    assert [name_of(page) for page in handbook()[1:] if page not in linked] == []
