from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from escalation.sandbox.ssh_agent import SOCKET, private_keys, ssh_host, supervisor_ssh_agent
from tests.escalation.sandbox.running import wait_until


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    directory = tmp_path / ".ssh"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    # A path that is too long for the address of a socket.
    made = tmp_path / ("run-" + "x" * 120)
    made.mkdir(mode=0o700)
    return made


def make_key(file: Path, passphrase: str = "") -> str:
    """Returns the public part, without its comment."""
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(file)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return " ".join(file.with_name(f"{file.name}.pub").read_text().split()[:2])


def held_by(socket: Path | None) -> list[str]:
    assert socket
    listed = subprocess.run(
        ["ssh-add", "-L"],
        env={"PATH": os.environ["PATH"], "SSH_AUTH_SOCK": socket.name},
        cwd=socket.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return [" ".join(line.split()[:2]) for line in listed.stdout.splitlines()]


def agents_in(directory: Path) -> list[psutil.Process]:
    """Processes, agent or shell, that were started in a directory."""
    found = []
    for process in psutil.process_iter(["name"]):
        try:
            cwd = process.cwd()
        except psutil.Error:
            continue
        if cwd == str(directory):
            found.append(process)
    return found


def test_keys_are_held_for_the_block_and_nothing_is_left(keys, directory):
    public = make_key(keys / "id_ed25519")

    with supervisor_ssh_agent({}, keys, directory) as agent:
        assert agent.socket == directory / SOCKET
        assert (directory / SOCKET).stat().st_mode & 0o777 == 0o600
        assert held_by(agent.socket) == [public]
        assert agent.notes == ()
        assert len(agents_in(directory)) == 2

    assert list(directory.iterdir()) == []
    assert agents_in(directory) == []


def test_a_key_signs_through_the_agent_alone(keys, directory, tmp_path):
    public = make_key(keys / "id_ed25519")
    (tmp_path / "public").write_text(public)

    with supervisor_ssh_agent({}, keys, directory) as agent:
        (keys / "id_ed25519").unlink()
        signed = subprocess.run(
            ["ssh-keygen", "-Y", "sign", "-f", str(tmp_path / "public"), "-n", "test"],
            env={"PATH": os.environ["PATH"], "SSH_AUTH_SOCK": SOCKET},
            cwd=directory,
            input=b"words",
            capture_output=True,
            check=False,
        )

    assert agent.socket
    assert signed.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----")


def test_keys_are_found_by_their_content_and_usual_names_come_first(keys, directory):
    odd, usual = make_key(keys / "a_deploy_key"), make_key(keys / "id_ed25519")
    (keys / "config").write_text("Host nas\n")
    (keys / "known_hosts").write_text("nas ssh-ed25519 AAAA\n")
    (keys / "control").mkdir()

    with supervisor_ssh_agent({}, keys, directory) as agent:
        assert held_by(agent.socket) == [usual, odd]
        assert agent.notes == ()


def damage(file: Path) -> None:
    file.write_text(file.read_text().splitlines()[0])


@pytest.mark.parametrize(
    ("passphrase", "change"),
    [
        ("a long word", lambda file: None),
        ("", damage),
        ("", lambda file: file.chmod(0o644)),
    ],
    ids=["passphrase", "damaged", "readable by all"],
)
def test_a_key_that_cannot_be_loaded_is_skipped_and_named(
    keys, directory, passphrase, change: Callable[[Path], None]
):
    public = make_key(keys / "id_rsa")
    make_key(keys / "other", passphrase)
    change(keys / "other")

    with supervisor_ssh_agent({}, keys, directory) as agent:
        assert held_by(agent.socket) == [public]
        assert [note.split()[0] for note in agent.notes] == [str(keys / "other")]


def test_an_agent_without_any_key_is_not_given(keys, directory):
    make_key(keys / "id_ed25519", "a long word")

    with supervisor_ssh_agent({}, keys, directory) as agent:
        assert agent.socket is None
        assert len(agent.notes) == 1


def test_without_keys_no_agent_is_started(keys, directory):
    with supervisor_ssh_agent({}, keys / "missing", directory) as agent:
        assert agent.socket is None
        assert len(agent.notes) == 1
        assert agents_in(directory) == []
    assert private_keys(keys) == []


def test_without_openssh_the_reason_is_noted(keys, directory):
    make_key(keys / "id_ed25519")

    with supervisor_ssh_agent({"PATH": "/nowhere"}, keys, directory) as agent:
        assert agent.socket is None
        assert len(agent.notes) == 1


def test_the_operators_own_agent_is_used_if_it_holds_keys(keys, directory, tmp_path):
    public = make_key(keys / "id_ed25519")
    make_key(tmp_path / "elsewhere")
    with supervisor_ssh_agent({}, keys, directory) as own:
        # The address of a socket is short: it is named from here.
        os.symlink(directory, tmp_path / "d")
        variable = {"SSH_AUTH_SOCK": str(tmp_path / "d" / SOCKET)}
        with supervisor_ssh_agent(variable, keys, tmp_path) as agent:
            assert agent.socket == tmp_path / "d" / SOCKET
            assert held_by(agent.socket) == [public]
            assert agents_in(tmp_path) == []
        # It is not ours to end.
        assert held_by(own.socket) == [public]


@pytest.mark.parametrize("variable", ["", "/nowhere/agent.sock"])
def test_an_agent_that_does_not_answer_is_replaced(keys, directory, variable):
    make_key(keys / "id_ed25519")

    with supervisor_ssh_agent({"SSH_AUTH_SOCK": variable}, keys, directory) as agent:
        assert agent.socket == directory / SOCKET


def test_an_error_in_the_block_ends_the_agent(keys, directory):
    make_key(keys / "id_ed25519")

    with pytest.raises(KeyError), supervisor_ssh_agent({}, keys, directory):
        raise KeyError
    assert agents_in(directory) == []


def test_a_killed_supervisor_leaves_no_agent(keys, directory):
    make_key(keys / "id_ed25519")
    program = (
        "import sys, time; from pathlib import Path\n"
        "from escalation.sandbox.ssh_agent import supervisor_ssh_agent\n"
        "with supervisor_ssh_agent({}, Path(sys.argv[1]), Path(sys.argv[2])):\n"
        "    print('ready', flush=True); time.sleep(60)\n"
    )
    words = [sys.executable, "-c", program, str(keys), str(directory)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout
        assert supervisor.stdout.readline() == b"ready\n"
        assert len(agents_in(directory)) == 2
        supervisor.send_signal(signal.SIGKILL)

    wait_until(lambda: not agents_in(directory))
    assert list(directory.iterdir()) == []


def test_a_host_is_known_by_its_keys_whatever_it_is_called(tmp_path: Path):
    """By name, alias, address, account, another port, hashed; unknown ones and authorities not."""
    public = {}
    for name, kind in (("web1", "ed25519"), ("web2", "ed25519"), ("web2-rsa", "rsa")):
        make = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(tmp_path / name)]
        subprocess.run(make, check=True)
        public[name] = (tmp_path / f"{name}.pub").read_text().strip()
    known = tmp_path / "known"
    lines = [
        f"web1.lan,10.0.0.1,[gate]:2222 {public['web1']}",
        f"10.0.0.2 {public['web2']}",
        f"10.0.0.2 {public['web2-rsa']}",
        f"@cert-authority *.cloud {public['web1']}",
    ]
    known.write_text("".join(f"{line}\n" for line in lines))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    config = tmp_path / "config"
    config.write_text(
        f"Host one\n HostName 10.0.0.1\nHost gate\n Port 2222\nHost named\n HostKeyAlias web1.lan\n"
        f"Host *\n UserKnownHostsFile {known}\n GlobalKnownHostsFile /dev/null\n"
    )

    def keys_of(name: str) -> str:
        return ssh_host(name, config)

    web1 = keys_of("web1.lan")
    assert web1.startswith("ssh-ed25519:")
    spelled = ("10.0.0.1", "one", "root@one", "WEB1.lan", "gate", "named")
    assert [keys_of(name) for name in spelled] == [web1] * len(spelled)
    assert keys_of("10.0.0.2") != web1
    assert [word.partition(":")[0] for word in keys_of("10.0.0.2").split()] == [
        "ssh-ed25519",
        "ssh-rsa",
    ]
    assert [keys_of(name) for name in ("elsewhere", "a.cloud", "-oProxyCommand=id")] == [""] * 3
