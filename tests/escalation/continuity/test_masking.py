"""What looks like a secret is hidden; what only resembles one survives."""

from __future__ import annotations

import time

import pytest

from escalation.continuity.masking import MASK, masked, masked_data

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4"
SECRETS = {
    "anthropic key": ("key sk-ant-api03-abcdEFGH_1234", "sk-ant"),
    "openai key": ("sk-proj-abcdefgh12345678", "sk-proj"),
    "github token": ("remote: ghp_abcdefghijklmnop1234", "ghp_"),
    "github fine-grained token": ("github_pat_11ABCDEFG0_abcdefghijkl", "github_pat_11"),
    "gitlab token": ("glpat-abcdefghij1234567890", "glpat-abc"),
    "slack token": ("xoxb-123456789012-abcdefGHIJ", "xoxb-1"),
    "aws key id": ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSF"),
    "aws secret": ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalr"),
    "jwt": (f"cookie: session={JWT}", "eyJhbGci"),
    "private key": (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----",
        "MIIEow",
    ),
    "private key that is cut off": ("-----BEGIN PRIVATE KEY-----\nMIIEow", "MIIEow"),
    "openssh key": (
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n-----END OPENSSH PRIVATE KEY-----",
        "b3BlbnNz",
    ),
    "password in the environment": ("DB_PASSWORD=hunter22 PATH=/bin", "hunter22"),
    "password in yaml": ("password: hunter22", "hunter22"),
    "password in json": ('{"password": "hunter22", "user": "app"}', "hunter22"),
    "passphrase": ("passphrase = 'hunter22'", "hunter22"),
    "api key": ("X-Api-Key: 0123456789abcdef", "0123456789abcdef"),
    "client secret": ("client_secret=abcdef123456&grant=x", "abcdef123456"),
    "token in a query": ("GET /hook?access_token=abcdef123456&a=1", "abcdef123456"),
    "bearer": ("Authorization: Bearer abcdef123456", "abcdef123456"),
    "basic": ("authorization: Basic YXBwOnNlY3JldA==", "YXBwOnNl"),
    "address": ("postgres://app:hunter22@db.internal/shop", "hunter22"),
    "address of a proxy": ("https://robot:hunter22@git.example.org/x.git", "hunter22"),
    "password in capitals": ("PASSWORD: HUNTER22", "HUNTER22"),
}

HARMLESS = [
    "disk is 100% full",
    "GET /health 200 in 3 ms",
    "nginx 1.25.3 (up 3 days)",
    "http://127.0.0.1:8000/status",
    "git@github.com:shop/web.git",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "0a0a0a0a-0000-4000-8000-000000000001",
    "Failed password for root from 10.0.0.7 port 22",
    "Tier 1 asked for escalation: web must be restarted.",
    "risk-assessment of the task-runner",
    "error: connection refused on port 5432",
    "-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----",
    "",
]


@pytest.mark.parametrize(("text", "secret"), SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_is_masked(text, secret):
    assert secret in text
    assert secret not in masked(text)
    assert MASK in masked(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays_as_it_is(text):
    assert masked(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("DB_PASSWORD=hunter22 PATH=/bin", f"DB_PASSWORD={MASK} PATH=/bin"),
        ('{"token": "abcdef", "user": "app"}', f'{{"token": "{MASK}", "user": "app"}}'),
        ("postgres://app:hunter22@db/shop", f"postgres://app:{MASK}@db/shop"),
        ("Authorization: Bearer abcdef", f"Authorization: Bearer {MASK}"),
    ],
)
def test_the_name_stays_and_only_the_value_goes(text, left):
    assert masked(text) == left


def test_two_secrets_are_masked_each_by_itself():
    text = masked("password=one1 and then token=two2")

    assert text == f"password={MASK} and then token={MASK}"


def test_masking_twice_changes_nothing_more():
    once = masked("password=hunter22 sk-ant-api03-abcdefgh")

    assert masked(once) == once


def test_data_keeps_its_shape_and_loses_its_secrets():
    data = {"a": ["password=hunter22", 7, None, True], "b": {"c": "fine"}}

    assert masked_data(data) == {"a": [f"password={MASK}", 7, None, True], "b": {"c": "fine"}}


@pytest.mark.parametrize(
    "text", ["a" * 40_000, "deadbeef" * 5_000, "password" * 3_000, "://" * 9_000]
)
def test_a_long_output_is_masked_in_good_time(text):
    began = time.monotonic()

    masked(text)

    assert time.monotonic() - began < 1
