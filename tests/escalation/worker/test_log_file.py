from __future__ import annotations

from escalation.worker import web_server
from escalation.worker.web_server import fresh_log


def test_the_log_is_private_and_appended_to(tmp_path):
    log = fresh_log(tmp_path)
    log.write_text("earlier\n")

    assert fresh_log(tmp_path).read_text() == "earlier\n"
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_large_log_is_rotated(tmp_path, monkeypatch):
    monkeypatch.setattr(web_server, "LARGEST_BYTES", 3)
    fresh_log(tmp_path).write_text("long")

    assert fresh_log(tmp_path).read_text() == ""
    assert (tmp_path / "logs" / "up.log.1").read_text() == "long"
