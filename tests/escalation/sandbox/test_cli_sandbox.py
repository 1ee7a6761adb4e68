from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from escalation.command_policy.grants import Grants
from escalation.sandbox.command_sandbox import cli_sandbox_argv
from escalation.sandbox.layout import sandbox_home
from escalation.sandbox.setup import write_client
from tests.escalation.sandbox.run_paths import PATH, Host
from tests.escalation.sandbox.running import running, shell_text


def bash(host: Host, command: str, **changes) -> subprocess.CompletedProcess[str]:
    """A shell in the CLI's paths."""
    paths = host.paths(**changes)
    environment = {"PATH": PATH, "HOME": sandbox_home(paths), "TMPDIR": str(paths.temp_directory)}
    return host.call(cli_sandbox_argv(["/bin/bash", "-c", command], paths), environment)


def test_the_configuration_and_the_temporary_directory_of_the_run_are_written(host):
    said = bash(host, f"echo x > '{host.root}/state/config/made' && echo y > \"$TMPDIR/made\"")

    assert said.stderr == ""
    assert (host.root / "state/config/made").read_text() == "x\n"
    assert (host.root / "state/tmp/made").read_text() == "y\n"


def test_the_rest_of_the_state_directory_is_hidden(host):
    said = bash(host, f"cd '{host.root}/state'; cat secret.txt; echo x > made; echo x > run/made")

    assert said.stdout == ""
    assert "run/made: Read-only" in said.stderr
    assert not (host.root / "state/made").exists()


def test_the_home_is_empty_and_read_only(host):
    said = bash(host, 'cd; pwd; ls -A; echo x > "$HOME/.bashrc"')

    assert said.stdout == f"{host.root}/home\n"
    assert "Read-only" in said.stderr


def test_nothing_of_the_working_directory_is_written_at_tier_1(host):
    assert "Read-only" in bash(host, "cat readme.txt; echo x > made").stderr


def test_the_working_directory_and_what_the_watch_names_are_written_from_tier_2_on(host):
    grants = Grants(writable=(str(host.root / "other"),))

    said = bash(
        host, f"echo x > made; echo x > '{host.root}/other/made'", writable=True, grants=grants
    )

    assert said.stderr == ""
    assert (host.root / "system/made").exists()
    assert (host.root / "other/made").exists()


def test_git_does_nothing(host):
    said = bash(host, "git status; echo $?; /usr/bin/git status; echo $?")

    assert (said.stdout, said.stderr) == ("1\n1\n", "")


def test_the_network_is_shared(host):
    assert "lo" in bash(host, "cut -d: -f1 /proc/net/dev").stdout
    own = os.readlink("/proc/self/ns/net")
    assert bash(host, "readlink /proc/self/ns/net").stdout.strip() == own


@pytest.mark.parametrize("path", ["/proc/sys/kernel/core_pattern", "/run/x", "/dev/x", "/etc/x"])
def test_the_host_cannot_be_written(host, path):
    assert "Read-only" in bash(host, f"echo x > {path}").stderr


def test_a_program_in_a_hidden_place_is_shown_alone(host):
    program = host.root / "code/claude"
    program.write_bytes(Path("/bin/bash").read_bytes())
    program.chmod(0o755)
    paths = host.paths()

    said = host.call(
        cli_sandbox_argv([str(program), "-c", f"cat '{host.root}/code/manage.py'; echo $0"], paths),
        {},
    )

    assert said.stdout == f"{program}\n"


def test_a_script_in_a_hidden_place_is_shown_with_its_package(host):
    package = host.root / "code/package"
    package.mkdir()
    (package / "part.txt").write_text("part\n")
    program = package / "cli.js"
    program.write_text(
        "#!/usr/bin/env node\n"
        "console.log(require('fs').readFileSync(__dirname + '/part.txt', 'utf8').trim())\n"
    )
    program.chmod(0o755)
    link = host.root / "home/claude"
    link.symlink_to(program)

    said = host.call(cli_sandbox_argv([str(link)], host.paths()), {"PATH": PATH})

    assert (said.stdout, said.stderr) == ("part\n", "")


def test_the_python_of_the_client_is_shown_where_it_is_hidden(own_host):
    [version, prefix] = [f"{sys.version_info.major}.{sys.version_info.minor}", sys.base_prefix]

    said = bash(own_host, f"'{prefix}/bin/python{version}' -IS -c 'print(1)'")

    assert said.stdout == "1\n"


def test_a_command_of_the_cli_sandbox_runs_in_its_own_sandbox(own_host):
    """The whole way, with a shell in the CLI's paths."""
    paths = own_host.paths()
    with running(paths):
        said = bash(
            own_host, f"'{paths.client}' \"$(cat <<'X'\n{shell_text('cat readme.txt')}\nX\n)\""
        )

    assert (said.stdout, said.stderr) == ("hello\n", "")


def test_the_client_cannot_be_changed_by_the_cli(own_host):
    write_client(own_host.paths().run_directory)

    said = bash(
        own_host, f"echo x > '{own_host.paths().client}'; rm -f '{own_host.paths().client}'"
    )

    assert said.stderr.count("Read-only") == 2


def test_processes_of_the_host_are_hidden(host):
    assert int(bash(host, "ls /proc | grep -c '^[0-9]'").stdout) < 10
