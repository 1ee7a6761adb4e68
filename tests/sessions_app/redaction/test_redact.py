"""Text in the form of a secret is redacted; text that only resembles one is kept."""

from __future__ import annotations

import json
import string
import time

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sessions_app.redaction.redact import BEGINNINGS, redacted, redacted_data
from tests.sessions_app.redaction.secret_tables import HARMLESS, SECRETS
from tests.tables import each_row


@each_row(("text", "secret"), SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_is_redacted(text, secret):
    assert secret in text
    assert secret not in redacted(text)
    assert BEGINNINGS[0] in redacted(text)


@each_row(("text", "secret"), SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_is_redacted_inside_other_output_and_inside_json(text, secret):
    output = f"$ cat file\n{text}\n$ echo done\ndone\n"

    assert secret not in redacted(output)
    assert secret not in json.dumps(redacted_data({"content": [{"text": output}]}))
    assert redacted(output).endswith("\n$ echo done\ndone\n")


@each_row("text", HARMLESS)
def test_what_is_no_secret_stays_as_it_is(text):
    assert redacted(text) == text


def test_the_tables_are_as_long_as_they_should_be():
    assert len(SECRETS) >= 580
    assert len(HARMLESS) >= 350


@each_row(
    ("text", "left"),
    [
        ("DB_PASSWORD=hunter22 PATH=/bin", "DB_PASSWORD=[redacted: password] PATH=/bin"),
        ('{"token": "abcdef", "a": 1}', '{"token": "[redacted: token]", "a": 1}'),
        ('{"password": 12345678}', '{"password": "[redacted: password]"}'),
        ("postgres://app:hunter22@db/shop", "postgres://app:[redacted: url password]@db/shop"),
        ("Authorization: Bearer abcdef", "Authorization: Bearer [redacted: authorization]"),
        (
            "password=one1 and token=two2",
            "password=[redacted: password] and token=[redacted: token]",
        ),
    ],
)
def test_the_name_stays_and_only_the_value_goes(text, left):
    assert redacted(text) == left


@each_row("text", [text for text, _secret in SECRETS.values()], ids=SECRETS.keys())
def test_redaction_twice_changes_nothing_more(text):
    once = redacted(text)

    assert redacted(once) == once


def test_what_a_mark_says_is_no_name_of_the_next_value():
    once = redacted('password: hunter22client_secret = "hunter22"')

    assert once == 'password: [redacted: password] = "hunter22"'
    assert redacted(once) == once
    assert "hunter22" not in redacted("[redacted: password=hunter22")


def test_a_mark_counts_as_the_word_that_it_hides():
    once = redacted("kennwort=Xk9pQ2mT7vLs4WzR  password: hunter")

    assert once == "kennwort=[redacted: password]  password: hunter"
    assert redacted(once) == once


def test_keys_without_anything_between_them_are_all_hidden():
    keys = "glsa_aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA_0a1b2c3dxoxb-123456789012-abcdefGHIJ"

    assert redacted(keys) == "[redacted: grafana token][redacted: slack token]"


def test_control_sequences_go_where_a_secret_is_found_and_stay_elsewhere():
    assert redacted("\x1b[1mpassword\x1b[0m: hunter22") == "password: [redacted: password]"
    assert redacted("\x1b[1mactive\x1b[0m") == "\x1b[1mactive\x1b[0m"


def test_secret_inside_a_control_sequence_is_redacted():
    link = "\x1b]8;;https://app:hunter22@git.example.org\x1b\\repository\x1b]8;;\x1b\\"

    assert redacted(link) == "repository"


def test_control_sequences_that_json_has_escaped_are_left_out_of_the_search():
    assert "hunter22" not in redacted('{"log": "password: \\u001b[1mhunter22\\u001b[0m"}')


def test_only_the_data_of_the_secret_is_redacted_in_a_list_of_kubernetes_objects():
    objects = (
        "items:\n"
        "- apiVersion: v1\n  data:\n    mode: cHJvZA==\n  kind: ConfigMap\n"
        "- apiVersion: v1\n  data:\n    mode: dGVzdA==\n  kind: Secret\n"
        "  metadata:\n    name: shop\n"
        "- kind: Secret\n  stringData:\n    note: |\n      first\n      second\n  type: Opaque\n"
        "- kind: ConfigMap\n  data:\n    mode: Zm9v\n"
    )

    assert redacted(objects) == (
        "items:\n"
        "- apiVersion: v1\n  data:\n    mode: cHJvZA==\n  kind: ConfigMap\n"
        "- apiVersion: v1\n  data:\n    mode: [redacted: secret data]\n  kind: Secret\n"
        "  metadata:\n    name: shop\n"
        "- kind: Secret\n  stringData:\n    note: |\n      [redacted: secret data]\n"
        "      [redacted: secret data]\n  type: Opaque\n"
        "- kind: ConfigMap\n  data:\n    mode: Zm9v\n"
    )


def test_only_the_data_of_the_secret_is_redacted_in_json_and_in_json_inside_of_json():
    objects = [
        {"data": {"mode": "cHJvZA=="}, "kind": "ConfigMap"},
        {"data": {"mode": "dGVzdA==", "a": "b"}, "kind": "Secret"},
        {"kind": "Secret", "metadata": {"name": "x"}, "stringData": {"note": 'say "{}"'}},
    ]
    hidden = [
        objects[0],
        {"data": dict.fromkeys(("mode", "a"), "[redacted: secret data]"), "kind": "Secret"},
        {**objects[2], "stringData": {"note": "[redacted: secret data]"}},
    ]
    applied = json.dumps({"annotation": json.dumps(objects[1])})

    assert json.loads(redacted(json.dumps(objects))) == hidden
    assert json.loads(redacted(json.dumps(objects, indent=2))) == hidden
    assert json.loads(json.loads(redacted(applied))["annotation"]) == hidden[1]
    assert redacted_data(objects) == hidden


PIECES = st.sampled_from(
    [text for text, _secret in SECRETS.values()]
    + [*HARMLESS, *"\"'\\ =:\n[]{}@", "password", "token: ", "-----BEGIN PRIVATE KEY-----"]
)


@hypothesis_settings(deadline=None)
@given(st.lists(PIECES | st.text(string.printable, max_size=8), max_size=6).map("".join))
def test_redaction_any_mixture_twice_changes_nothing_more(text):
    once = redacted(text)

    assert redacted(once) == once


def test_data_keeps_its_shape_and_loses_its_secrets():
    data = {"a": ["password=hunter22", 7, None, True], "b": {"c": "fine"}, "password": "x y"}

    assert redacted_data(data) == {
        "a": ["password=[redacted: password]", 7, None, True],
        "b": {"c": "fine"},
        "password": "[redacted: password]",
    }


@each_row(
    ("data", "left"),
    [
        ({"password": 12345678}, {"password": "[redacted: password]"}),
        ({"passwords": 3, "token": 48151}, {"passwords": 3, "token": 48151}),
        ({"tokens": ["Xk9pQ2mT7vLs", "the"]}, {"tokens": ["[redacted: token]", "the"]}),
        ({"secrets": ["db_password"]}, {"secrets": ["db_password"]}),
        (
            {"env": [{"name": "DB_PASSWORD", "value": "Xk9pQ2mT"}, {"name": "A", "value": "b"}]},
            {
                "env": [
                    {"name": "DB_PASSWORD", "value": "[redacted: password]"},
                    {"name": "A", "value": "b"},
                ]
            },
        ),
    ],
)
def test_data_is_redacted_by_the_names_around_a_value(data, left):
    assert redacted_data(data) == left


def test_ids_and_words_that_the_engine_reads_stay_even_if_they_are_a_password(settings):
    settings.CLAUDEOPS_ADMIN_PASSWORD = "healthy"
    line = {
        "type": "assistant",
        "uuid": "0a0a0a0a-0000-4000-8000-000000000001",
        "session_id": "0a0a0a0a-0000-4000-8000-000000000002",
        "message": {"id": "msg_01", "content": [{"type": "tool_use", "id": "toolu_01"}]},
        "structured_output": {"services": [{"name": "web", "status": "healthy"}]},
    }

    assert redacted_data(line) == line


# Beginnings that never become a secret, again and again: what a pattern might go back for.
ENDLESS = (
    *("a", "deadbeef", "password", "://", "eyJ-", "sk-", "-----BEGIN PRIVATE KEY-----", "curl -u "),
    *(
        'password="',
        "login x ",
        "://a:",
        "token: ",
        "-- ",
        "cookie: a=",
        "htpasswd -b ",
        "$6$",
        "eyJa.",
    ),
    *("a:1234:", "<password>", "identified by ", "\\", "secret:\\", " -p", "authorization: "),
    *("-----END PRIVATE KEY-----", "A\n", "xoxb-", "SG.", "a-", "--a", "_auth", "bearer ", 'key="'),
    *("kind: Secret\n", "kind: Secret\ndata:\n  a: b\n", '"kind":"Secret","data":{', '"data":{"'),
    *("recovery codes: ", "backup codes 1234-", "the password is ", "set password to ", "a1b2c3-"),
    *("a,token\n", "|token|\n", "tokens: [", "passwords:\n- a", "4111 ", "4111-1111-1111-1111 "),
    *("MIIEowIBAAKC", "b3BlbnNzaC1rZXktdjEA\n", "QUJD", "QUJD" * 19 + "\n", "\x1b[", "\x1b]0;"),
    *("Key  Value\n---  -----\n", "user a >b ~", "snmp community: ", "name: token value: "),
    *("echo a | docker --stdin", "password: |\n ", "token is ", '"kty" "d":"', "\\u001b[", "pin: "),
    *('sudo echo "', "sudo echo a|", "setenv a", "K10", "zip -P ", "openssl enc -k ", "pass ="),
)


@each_row("piece", ENDLESS)
def test_a_long_output_takes_time_in_proportion(piece):
    """What goes back again and again needs a minute of the processor's time and more."""
    began = time.process_time()

    redacted(piece * (100_000 // len(piece)))

    assert time.process_time() - began < 5


def test_the_password_that_is_shown_once_at_the_first_start_can_be_read():
    line = "Operator account: operator, password aB3dE5gH7jK9mN1p (shown only this once)"

    assert redacted(line) == line
