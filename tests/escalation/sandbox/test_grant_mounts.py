from __future__ import annotations

import os
import pwd
import socket
import subprocess
import threading
from pathlib import Path

from escalation.command_policy.grants import Grants
from tests.escalation.sandbox.run_paths import IS_ROOT, Host

REACH = """/usr/bin/python3 -c "
import socket
engine = socket.socket(socket.AF_UNIX)
engine.connect('{path}')
print(engine.recv(100).decode())"
"""


class Engine:
    """Somebody behind a socket who says one word to each who comes."""

    def __init__(self, path: Path, word: str) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        path.chmod(0o777)
        self._server.listen()
        self._word = word
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _address = self._server.accept()
            except OSError:
                break
            with connection:
                connection.sendall(self._word.encode())

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


def own_key(host: Host) -> Path:
    """A key of the host's user, in the home that the user database knows, too."""
    key = host.root / "home/.ssh/id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (host.root / "home/.ssh/config").write_text("Host web\n  HostName 10.1.2.3\n  User deploy\n")
    if IS_ROOT:
        person = pwd.getpwnam(host.user)
        for path in (host.root / "home/.ssh").iterdir():
            os.chown(path, person.pw_uid, person.pw_gid)
    return key


def test_the_docker_grant_leads_to_the_filter_and_to_nothing_else(host):
    engine = Engine(host.root / "state/run/filter.sock", "filtered")
    socket_path = host.root / "state/run/filter.sock"
    try:
        said = host.bash(
            REACH.format(path="/run/docker.sock") + REACH.format(path="/var/run/docker.sock"),
            "docker",
            docker_socket=socket_path,
        )
    finally:
        engine.close()

    assert said.stdout.splitlines() == ["filtered", "filtered"]


def test_the_docker_client_asks_the_filter(host):
    said = host.bash("docker version 2>&1", "docker", docker_socket=host.root / "state/secret.txt")

    assert "unix:///var/run/docker.sock" in said.stdout


def test_without_the_grant_there_is_no_engine(host):
    engine = Engine(host.root / "state/run/filter.sock", "filtered")
    try:
        said = host.bash(
            REACH.format(path="/run/docker.sock")
            + REACH.format(path="$PWD/../state/run/filter.sock"),
            docker_socket=host.root / "state/run/filter.sock",
        )
    finally:
        engine.close()

    assert "filtered" not in said.stdout


def test_a_docker_grant_without_a_filter_leads_nowhere(host):
    said = host.bash("ls /run/docker.sock", "docker")

    assert said.stdout == ""


def test_no_sandbox_shows_a_key_by_any_name(host):
    key = own_key(host)
    link = host.root / "system/link"
    link.symlink_to(key)

    said = [host.bash(f"cat '{key}' '{link}' .ssh/id*", grant) for grant in ("", "ssh", "network")]

    assert [each.stdout for each in said] == ["", "", ""]


def test_ssh_takes_the_operators_settings_as_its_own(host):
    own_key(host)

    said = host.bash('ssh -T -F "$HOME/.ssh/config" -G web', "ssh")

    assert said.stderr == ""
    assert {"hostname 10.1.2.3", "user deploy"} <= set(said.stdout.splitlines())


def test_ssh_accepts_the_systems_settings(host):
    said = host.bash("ssh -G example.invalid", "ssh")

    assert said.returncode == 0
    assert "Bad owner" not in said.stderr


def test_the_agent_is_reached_through_the_ssh_grant_alone(host):
    path = host.root / "state/agent.sock"
    engine = Engine(path, "agent")
    command = REACH.format(path="${SSH_AUTH_SOCK:-/run/claudeops/agent.sock}")
    try:
        through, without = (host.bash(command, grant, ssh_agent=path) for grant in ("ssh", ""))
    finally:
        engine.close()

    assert through.stdout == "agent\n"
    assert "agent" not in without.stdout


def test_a_text_has_a_kubeconfig_that_names_the_filter_and_not_the_operators(host):
    (host.root / "home/.kube").mkdir()
    (host.root / "home/.kube/config").write_text("token: secret\n")
    ours = host.root / "state/run/kubeconfig"
    ours.write_text("server: filter\n")
    ours.chmod(0o644)
    granted = {"kubeconfig": ours, "grants": Grants(names=frozenset({"kube"}))}
    command = 'cat "$KUBECONFIG" ~/.kube/config'

    with_grant, without = host.bash(command, **granted), host.bash(command, kubeconfig=ours)

    assert with_grant.stdout == "server: filter\n"
    assert without.stdout == ""


def test_the_bus_grant_shows_systemd_and_the_bus(host):
    names = [name for name in ("systemd", "dbus") if Path("/run", name).is_dir()]
    listed = " ".join(f"/run/{name}" for name in names)

    assert names
    assert host.bash(f"ls -d {listed}", "bus").returncode == 0
    assert host.bash(f"ls -d {listed}").returncode != 0
