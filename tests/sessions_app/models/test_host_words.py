"""Names and labels of hosts."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from sessions_app.models.watch import may_run, read_host_words
from tests.factories import WatchFactory
from tests.tables import each_row


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ()),
        ("nas", ("nas",)),
        ("nas, LAB\n lab", ("lab", "nas")),
        ("rack-2.example.org", ("rack-2.example.org",)),
    ],
)
def test_labels_are_normalised(text, words):
    assert read_host_words(text) == words


@pytest.mark.parametrize("text", ["nas;rm", "-x", "ä", "a" * 81])
def test_an_invalid_label_is_refused(text):
    with pytest.raises(ValueError, match="label"):
        read_host_words(text)


@each_row(
    ("words", "labels", "may"),
    [
        ((), {"lab"}, True),
        (("lab",), {"lab", "nas"}, True),
        (("lab", "nas"), {"nas"}, True),
        (("lab",), {"nas"}, False),
        (("lab",), set(), False),
    ],
)
def test_one_matching_label_is_enough(words, labels, may):
    assert may_run(words, labels) is may


@pytest.mark.django_db
def test_a_watch_stores_normalised_hosts(tmp_path):
    watch = WatchFactory(hosts="NAS,lab", workdir=str(tmp_path))

    watch.full_clean()

    assert watch.hosts == "lab nas"


@pytest.mark.django_db
def test_a_watch_with_invalid_hosts_is_invalid(tmp_path):
    watch = WatchFactory(hosts="lab n@s", workdir=str(tmp_path))

    with pytest.raises(ValidationError, match="'n@s' is not a host label"):
        watch.full_clean()
