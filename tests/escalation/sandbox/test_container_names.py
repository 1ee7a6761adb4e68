from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from escalation.sandbox import docker_filter
from escalation.sandbox.docker_filter import may_be_id, name_behind, names_of
from escalation.sandbox.proof.docker_engine import DockerEngine, docker_engine
from tests.tables import each_row

IDS = {"web": "abc1" * 16, "db": "abc2" * 16, "cafe": "dddd" * 16}


@each_row(
    ("word", "name"),
    [
        ("abc1" * 16, "web"),
        ("abc1abc1abc1", "web"),
        ("abc2", "db"),
        ("abc", ""),
        ("d", "cafe"),
        ("cafe", "cafe"),
        ("beef", ""),
    ],
)
def test_an_id_means_what_the_engine_would_take_it_for(word, name):
    assert name_behind(word, IDS) == name


@each_row("word", ["web", "shop-web-1", "*", "", "ABC", "a" * 65])
def test_what_cannot_be_an_id_is_not_asked_for(word):
    assert not may_be_id(word)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DockerEngine]:
    with docker_engine(tmp_path / "engine.sock") as engine:
        yield engine


def test_the_engine_is_asked_once_and_only_for_ids(engine, tmp_path):
    number = engine.containers["web"].id

    names = names_of(tmp_path / "engine.sock", [number, number[:12], "db", "0" * 12])

    assert names == {number: "web", number[:12]: "web", "db": "db"}
    assert len(engine.requests) == 1
    assert names_of(tmp_path / "engine.sock", ["web", "shop-db-1"]) == {}
    assert len(engine.requests) == 1


def test_without_an_engine_no_name_is_known(tmp_path):
    assert names_of(None, ["abc123"]) == {}
    assert names_of(tmp_path / "nowhere.sock", ["abc123"]) == {}


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 500 No\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n{}", b"nonsense\r\n\r\n"]
)
def test_an_engine_without_a_valid_answer_gives_no_names(tmp_path, monkeypatch, answer):
    monkeypatch.setattr(docker_filter, "LOOK_UP_SECONDS", 0.2)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "engine.sock"))
        listener.listen()
        if answer:

            def reply() -> None:
                client, _address = listener.accept()
                client.sendall(answer)
                client.close()

            threading.Thread(target=reply, daemon=True).start()

        assert names_of(tmp_path / "engine.sock", ["abc123"]) == {}
