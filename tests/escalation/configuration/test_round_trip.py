"""Export, an empty database, apply: the same state."""

from __future__ import annotations

import re

import pytest
from django.core.management import call_command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from escalation.configuration import state
from escalation.configuration.apply import Actor, apply
from escalation.configuration.files import read
from escalation.errors import RefusalCode
from sessions_app.models import AppliedDeclaration, Channel, Probe, Source, Watch
from sessions_app.models.autonomy import AutonomyLevel
from tests.escalation.refusals import command_refused
from tests.factories import WatchFactory

pytestmark = pytest.mark.django_db

name = st.text("abcdefgh-._ ", min_size=1, max_size=8).filter(lambda text: text == text.strip())
plain = st.text("abcdefghij", min_size=1, max_size=6)
text = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=60
)
seconds = st.integers(5, 7 * 86_400)
rate = st.builds("{}/{}h".format, st.integers(0, 50), st.integers(1, 999))


def optional(**keys):
    return st.fixed_dictionaries({}, optional=keys)


probes = st.one_of(
    *(
        st.fixed_dictionaries({"service": plain, **kind}, optional=keys)
        for kind, keys in (
            (
                {"http": st.just("https://shop.example/health")},
                {"options": st.just({"status": "200-299,401", "latency_ms": 500})},
            ),
            ({"tcp": st.just("127.0.0.1:80")}, {"fail_after": st.integers(1, 100)}),
            ({"disk": st.just("/srv")}, {"every": seconds.map("{}s".format)}),
            ({"heartbeat": st.just(True)}, {"timeout": st.integers(1, 3600).map("{}s".format)}),
        )
    )
)
remedies = st.fixed_dictionaries(
    {"description": plain, "command": st.just(["docker", "restart", "{service}"])},
    optional={
        "parameters": st.just(["service: service"]),
        "seconds": st.integers(1, 600),
        "tier": st.sampled_from([2, 3]),
        "kind": st.sampled_from(["restart", "other"]),
        "grants": st.just(["docker"]),
        "enabled": st.booleans(),
    },
).map(lambda remedy: {**remedy, "parameters": ["service: service"]})
policies = st.one_of(
    optional(autonomy=st.sampled_from([level.value for level in AutonomyLevel])),
    optional(
        max_tier=st.integers(1, 3),
        dry_run=st.booleans(),
        approval=st.lists(st.sampled_from([2, 3]), unique=True),
    ),
)
rhythms = st.one_of(
    optional(every=st.integers(1, 5000).map("{}m".format)),
    st.fixed_dictionaries({"cron": st.sampled_from(["0 3 * * *", "*/15 * * * *"])}),
)
watches = st.builds(
    lambda *parts: {key: value for part in parts for key, value in part.items()},
    policies,
    rhythms,
    optional(
        instructions=text,
        enabled=st.booleans(),
        hosts=st.lists(plain, max_size=3),
        ask=st.lists(st.sampled_from(["Bash(git push:*)", "Bash(reboot)"]), unique=True),
        grants=st.lists(st.sampled_from(["-ssh", "write:/srv/app", "http:nas.lan"]), unique=True),
        budgets=st.decimals(0, 1000, places=4).map(lambda day: {"day": day}),
        restarts=rate,
        redeployments=rate,
        probes=st.dictionaries(plain, probes, max_size=3),
        remedies=st.dictionaries(plain, remedies, max_size=2),
    ),
)
configurations = st.dictionaries(name, watches, min_size=1, max_size=3)


def forget_all() -> None:
    for model in (Watch, Source, Channel, AppliedDeclaration):
        model.objects.all().delete()


def applied(path, environment=None):
    done = apply(read(path, environment or {}), by=Actor(name="anna"))
    assert done.mistakes == ()
    return done


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(content=configurations)
def test_export_restores_the_same_state_in_an_empty_database(tmp_path, content):
    import tomli_w

    file, exported = tmp_path / "a.toml", tmp_path / "b.toml"
    workdir = tmp_path / "shop"
    workdir.mkdir(exist_ok=True)
    declared = {name: {"directory": str(workdir), **watch} for name, watch in content.items()}
    file.write_text(tomli_w.dumps({"watches": declared}), encoding="utf-8", newline="")
    forget_all()
    applied(file)
    before, text = state.current(), state.export()

    exported.write_text(text.text, encoding="utf-8", newline="")
    forget_all()
    applied(exported)

    assert text.hidden == ()
    assert state.current() == before
    assert applied(exported).steps == ()
    assert state.export().text == text.text


SECRETS = """
[watches.shop]
directory = "{workdir}"
[[watches.shop.maintenance]]
starts_at = 2026-11-22T02:00:00
for = "2h"
weekly = true
[sources.am-1]
kind = "alertmanager"
routes = [{{ label = "team", value = "a:b", watch = "shop" }}]
token = "env:T"
secret = "env:S"
[sources."am 1"]
kind = "pagerduty"
watch = "shop"
token = "env:U"
secret = "none"
[channels.phone]
address = "env:PHONE"
watches = ["shop"]
quiet = "22:00-07:00"
digest = "08:00"
"""
VALUES = {"T": "t" * 30, "U": "u" * 32, "S": "geheim-und-lang", "PHONE": "json://a:pw1@127.0.0.1:9"}


def test_export_writes_references_in_place_of_secrets(tmp_path, capsys):
    file, exported = tmp_path / "a.toml", tmp_path / "b.toml"
    (tmp_path / "shop").mkdir()
    file.write_text(SECRETS.format(workdir=tmp_path / "shop"))
    applied(file, VALUES)
    before = state.current()

    call_command("export", str(exported))
    text, told = exported.read_text(), capsys.readouterr().err

    assert not [value for value in (*VALUES.values(), "pw1") if value in text]
    found = re.findall(r'(?:token|secret|address) = "env:(\w+)"', text)
    assert len(set(found)) == 4
    assert all(reference in told for reference in found)
    tokens = {
        "SOURCE_AM_1_TOKEN_2": "t" * 30,
        "SOURCE_AM_1_TOKEN": "u" * 32,
        "SOURCE_AM_1_SECRET": VALUES["S"],
        "CHANNEL_PHONE_ADDRESS": VALUES["PHONE"],
    }
    assert set(found) == set(tokens)
    forget_all()
    applied(exported, tokens)
    assert state.current() == before
    with command_refused(RefusalCode.FILE):
        call_command("export", str(exported))
    call_command("export", str(exported), "--force")


def test_secret_within_a_value_is_redacted_and_cannot_be_applied(tmp_path, capsys):
    watch = WatchFactory(name="shop", workdir="/tmp")
    token = "ghp_" + "Ab3" * 12
    Probe.objects.create(
        watch=watch, name="p", service="x", kind="http", target=f"https://h/?t={token}"
    )

    call_command("export")
    out = capsys.readouterr()

    assert token not in out.out
    assert "http of the probe shop/p" in out.err
    (tmp_path / "a.toml").write_text(out.out)
    assert read(tmp_path / "a.toml", {}).mistakes


def test_export_of_one_watch_has_no_other(tmp_path, capsys):
    for one in ("shop", "nas"):
        WatchFactory(name=one, workdir="/tmp")

    call_command("export", "--watch", "nas")

    assert re.findall(r"^\[(.*)\]$", capsys.readouterr().out, re.MULTILINE) == ["watches.nas"]
