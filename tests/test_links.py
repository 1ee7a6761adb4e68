"""Every link from one document of ours to another leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_its_links_lead_to_files(document):
    named = LINK.findall(document.read_text())

    assert [link for link in named if not (document.parent / link).exists()] == []


def test_links_are_found():
    assert LINK.findall("[a](docs/x.md) [b](https://x) ![c](y.png#z)") == ["docs/x.md", "y.png"]
