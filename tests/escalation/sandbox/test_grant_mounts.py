from __future__ import annotations

import os
import pwd
import socket
import subprocess
import threading
from pathlib import Path

from escalation.sandbox.layout import Operator
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
            REACH.format(path="/run/docker.sock")
            + REACH.format(path="/var/run/docker.sock")
            + "echo $DOCKER_HOST; ls /run",
            "docker",
            docker_socket=socket_path,
        )
    finally:
        engine.close()

    assert said.stdout.splitlines() == [
        *("filtered", "filtered", "unix:///run/docker.sock", "docker.sock"),
    ]


def test_the_docker_client_asks_the_filter(host):
    said = host.bash("docker version 2>&1", "docker", docker_socket=host.root / "state/secret.txt")

    assert "unix:///run/docker.sock" in said.stdout


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
    assert host.bash("ls -A /run; echo $DOCKER_HOST", "docker").stdout == "\n"


def test_keys_are_there_for_the_ssh_grant_alone(host):
    key = own_key(host)

    without, through = (host.bash(f"ssh-keygen -y -f '{key}'", *grant) for grant in ((), ("ssh",)))

    assert without.stdout == ""
    assert through.stdout.split()[:2] == key.with_suffix(".pub").read_text().split()[:2]
    assert "Read-only" in host.bash(f"echo x >> '{key}'", "ssh").stderr


def test_beside_a_copy_the_agent_is_there_and_no_key_by_any_name(host):
    key = own_key(host)
    path = host.root / "state/agent.sock"
    engine = Engine(path, "agent")
    operator = Operator(home=host.root / "home", ssh_agent=path)
    link = host.root / "system/link"
    link.symlink_to(key)
    try:
        said = host.bash(
            f"cat '{key}' '{link}'; ls '{key.parent}'; " + REACH.format(path="$SSH_AUTH_SOCK"),
            "agent",
            operator=operator,
        )
    finally:
        engine.close()

    assert said.stdout.split() == ["config", "id_ed25519.pub", "agent"]


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
    operator = Operator(home=host.root / "home", ssh_agent=path)
    command = REACH.format(path="$SSH_AUTH_SOCK")
    try:
        through, without = (
            host.bash(command, *grant, operator=operator) for grant in (("ssh",), ())
        )
    finally:
        engine.close()

    assert through.stdout == "agent\n"
    assert "agent" not in without.stdout


def test_the_kube_grant_shows_the_named_files_read_only(host):
    configs = [host.root / f"state/{name}.yaml" for name in ("one", "two")]
    for config in configs:
        config.write_text(f"{config.stem}: []\n")
        config.chmod(0o666)
    operator = Operator(home=host.root / "home", kubeconfigs=tuple(configs))
    command = 'cat ${KUBECONFIG//:/ }; echo x >> "${KUBECONFIG%%:*}"'

    through, without = (host.bash(command, *grant, operator=operator) for grant in (("kube",), ()))

    assert through.stdout == "one: []\ntwo: []\n"
    assert "Read-only" in through.stderr
    assert without.stdout == ""


def test_without_a_named_file_the_kube_grant_shows_the_usual_place(host):
    (host.root / "home/.kube").mkdir()
    (host.root / "home/.kube/config").write_text("clusters: []\n")
    (host.root / "home/.kube/ca.crt").write_text("beside it\n")

    said = host.bash('cat "$KUBECONFIG" "${KUBECONFIG%/*}/ca.crt"', "kube")

    assert said.stdout == "clusters: []\nbeside it\n"
    assert host.bash('ls -A "$HOME"').stdout == ""


def test_no_link_leads_to_a_clusters_login_and_no_list_shows_its_place(host):
    """helm follows the links of a chart, and sends what it finds."""
    (host.root / "home/.kube").mkdir()
    (host.root / "home/.kube/config").write_text("token: secret\n")
    for name, target in (("usual", host.root / "home/.kube"), ("run", Path("/run"))):
        (host.root / "system" / name).symlink_to(target)

    said = host.bash("cat usual/config; find -L . -type f -exec cat {} +", "kube")

    assert "secret" not in said.stdout
    assert "claudeops-logins" in said.stderr


def test_a_kube_grant_without_a_login_shows_nothing(host):
    assert host.bash('echo "$KUBECONFIG"; ls /run', "kube").stdout == "\n"


def test_the_bus_grant_shows_systemd_and_the_bus_and_no_more_of_run(host):
    shown = set(host.bash("ls /run", "bus").stdout.split())

    assert shown == {name for name in ("systemd", "dbus") if Path("/run", name).is_dir()}
    assert shown


def test_the_operator_is_read_from_the_environment():
    operator = Operator.of({"SSH_AUTH_SOCK": "/a", "KUBECONFIG": "/b::/c"}, Path("/home/me"))

    assert operator == Operator(
        home=Path("/home/me"), ssh_agent=Path("/a"), kubeconfigs=(Path("/b"), Path("/c"))
    )
