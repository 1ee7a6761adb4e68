"""Files of an installation: where they are, the keys among them, and their permissions."""

from __future__ import annotations

import base64
import contextlib
import os
import pwd
import secrets
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

PACKAGE = Path(__file__).resolve().parent
BASE_DIR = PACKAGE.parent
# The wheel has templates and prompts inside this package, a checkout beside it.
IS_INSTALLED = (PACKAGE / "templates").is_dir()
RESOURCES = PACKAGE if IS_INSTALLED else BASE_DIR

ENV_FILE_NAME = "CLAUDEOPS_ENV_FILE"


# An installed package never uses the current directory: it may be a watched system, in which an
# agent could have left a `.env`.


def state_directory(environment: Mapping[str, str], *, installed: bool = IS_INSTALLED) -> Path:
    if not installed:
        return BASE_DIR / "state"
    return _of_the_user(environment, "XDG_DATA_HOME", ".local/share") / "claudeops"


def env_file(environment: Mapping[str, str], *, installed: bool = IS_INSTALLED) -> Path:
    if given := environment.get(ENV_FILE_NAME, "").strip():
        return Path(given).expanduser().absolute()
    if not installed:
        return BASE_DIR / ".env"
    return _of_the_user(environment, "XDG_CONFIG_HOME", ".config") / "claudeops" / ".env"


def _of_the_user(environment: Mapping[str, str], name: str, usual: str) -> Path:
    """Return a base directory by the XDG rules, which ignore relative paths."""
    given = Path(environment.get(name, ""))
    return given if given.is_absolute() else Path.home() / usual


def make_state_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ImproperlyConfigured(
            f"CLAUDEOPS_STATE_DIR is {str(path)!r}, but no directory can be made there: "
            f"{error.strerror}."
        ) from error


def stored_secret_key(state_directory: Path) -> str:
    """Return Django's `SECRET_KEY`, made at first use."""
    return _stored(state_directory, "secret_key", lambda: secrets.token_urlsafe(50))


def stored_encryption_keys(state_directory: Path) -> tuple[str, ...]:
    """Return the keys of archive and addresses: the first one encrypts, all of them decrypt."""
    return tuple(_stored(state_directory, "encryption_key", _new_fernet_key).split())


def _new_fernet_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def _stored(state_directory: Path, name: str, make: Callable[[], str]) -> str:
    """Return a stored key, made if it is missing.

    It is written to a draft and linked into place: no process reads half a key, the first one wins.
    """
    make_state_directory(state_directory)
    path = state_directory / name
    if not (path.exists() and path.read_text().strip()):
        draft = state_directory / f"{name}.{secrets.token_hex(8)}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(make())
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            if not path.read_text().strip():  # left empty by a crash
                draft.replace(path)
        draft.unlink(missing_ok=True)
    return path.read_text().strip()


OTHERS = 0o077
# Entries of the state directory that Claude Ops makes, those of version 0.2 among them.
OUR_NAMES = {
    *("api_proxy", "bench", "claude", "cli", "drills", "encryption_key", "handoffs", "home"),
    *("logs", "runs", "sandbox", "sandboxes", "secret_key", "spans", "spool", "tools"),
    *("up.lock", "wakeup"),
    *("bell", "gateway", "rooms", "walls"),
}
OUR_PREFIXES = ("claudeops.sqlite3", "encryption_key.", "secret_key.")


# Whoever reads the state directory has the keys and every conversation; whoever writes to it
# controls the supervisor. Our own files are closed at the start. Files of another owner, and a
# directory that holds other files too, are left alone and reported by a system check.


def make_new_files_private() -> None:
    """Set the umask of a process of ours; the CLI and its tools get an ordinary one back."""
    os.umask(OTHERS)


def private_paths(state: Path, *others: Path) -> list[Path]:
    """Return all paths to close: the state directory, our entries in it, and `others`."""
    kept = [path for path in _entries(state) if _is_ours(path)]
    beside = [Path(f"{path}{end}") for path in others for end in ("", "-wal", "-shm")]
    return [path for path in dict.fromkeys((state, *kept, *beside)) if _is_plain(path)]


def close_to_others(state: Path, *others: Path) -> None:
    for path in private_paths(state, *others):
        with contextlib.suppress(OSError):  # reported by a system check
            if path != state or all(map(_is_ours, _entries(state))):
                _close(path)


def complaints(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield each problem with the command that corrects it."""
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            continue
        mode, where = stat.S_IMODE(found.st_mode), shlex.quote(str(path))
        if found.st_uid != os.geteuid():
            yield (
                f"{path} belongs to {_user(found.st_uid)}, but Claude Ops runs as "
                f"{_user(os.geteuid())}.",
                f"sudo chown -R {_user(os.geteuid())} {where}, or run it as its owner.",
            )
        if mode & OTHERS:
            wanted = f"{mode & ~OTHERS:o}"
            yield (
                f"{path} is open to other users (mode {mode:o}).",
                f"chmod {wanted} {where}",
            )


def _close(path: Path) -> None:
    found = path.stat()
    if found.st_uid == os.geteuid() and found.st_mode & OTHERS:
        path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _is_ours(path: Path) -> bool:
    return path.name in OUR_NAMES or path.name.startswith(OUR_PREFIXES)


def _is_plain(path: Path) -> bool:
    """Test for an existing path that is no symbolic link."""
    return path.exists() and not path.is_symlink()


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
