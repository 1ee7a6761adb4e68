"""A real web server serves all static files without `collectstatic`."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request

from tests.system.conftest import PROJECT, Installation, wait_until


def fetched(address: str) -> bytes | None:
    try:
        content: bytes = urllib.request.urlopen(address).read()
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{address}: {error}") from error
    except OSError:
        return None
    return content


def test_every_file_that_a_page_names_is_served(migrated: Installation):
    port = migrated.environment["CLAUDEOPS_PORT"]
    address = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "claudeops.asgi:application", "--port", port],
        cwd=PROJECT,
        env=migrated.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    migrated.processes.append(server)
    wait_until(lambda: fetched(address + "/login/"), "the web server answers")

    page = fetched(address + "/login/") or b""
    # The admin has no page for strangers; its files come from the same place.
    named = {*re.findall(r'"(/static/[^"]+)"', page.decode()), "/static/admin/css/base.css"}

    assert all(fetched(address + name) for name in named)
    assert {"claudeops.css", "htmx-2.min.js", "hx-sse-2.min.js"} <= {
        name.rpartition("/")[2] for name in named
    }
