from __future__ import annotations

from escalation.sandbox.api_proxy import may_ask
from tests.tables import each_row


@each_row(
    ("word", "model"),
    [
        ("haiku", "haiku"),
        ("haiku", "claude-haiku-4-5-20251001"),
        ("haiku", "claude-3-5-haiku-20241022"),
        ("haiku", "us.anthropic/claude-haiku-4-5"),
        ("Sonnet", "claude-sonnet-4-5[1m]"),
        ("sonnet[1m]", "claude-sonnet-4-5"),
        ("opusplan", "claude-sonnet-4-5"),
        ("opusplan", "claude-opus-4-1"),
        ("claude-opus-4-1", "claude-opus-4-1"),
        ("claude-opus-4-1", "claude-opus-4-1-20250805"),
        ("claude-opus-4-1", "claude-opus-4-1[1m]"),
        ("claude-opus-4-1", "claude-opus-4-1-20250805[1m]"),
        ("claude-opus-4-1-20250805", "claude-opus-4-1-20250805"),
        ("my-proxy/large", "my-proxy/large"),
        ("haiku", "claude-3-5-haiku-latest"),
        ("HAIKU", "Claude-Haiku-4-5"),
        ("eu.anthropic.claude-opus-4-1-v1:0", "eu.anthropic.claude-opus-4-1-v1:0"),
    ],
)
def test_a_name_means_a_model(word, model):
    assert may_ask(model, (word,))


@each_row(
    ("word", "model"),
    [
        ("haiku", "claude-opus-4-1"),
        ("haiku", "claude-haikuish-1"),
        ("haiku", ""),
        ("", "claude-opus-4-1"),
        ("claude-opus-4-1", "claude-opus-4"),
        ("claude-opus-4", "claude-opus-4-1"),
        ("claude-opus-4-1", "claude-opus-4-1-preview"),
        ("claude-opus-4-1-20250805", "claude-opus-4-1-20260101"),
        ("claude-opus-4-1", "claude-opus-4-1-latest"),
        ("haiku", "claude-opus-4-1-haiku"),
        ("haiku", "claude-haiku-4-5,claude-opus-4-1"),
        ("opusplan", "claude-opus-4-1/haiku"),
        ("haiku", "claude-haiku-4-5\n"),
        ("haiku", "claude haiku"),
        ("haiku", "claude-haiku-4-5?model=x"),
        ("claude-opus-4-1", "claude-opus-4-1\u200b"),
    ],
)
def test_a_name_does_not_mean_another_model(word, model):
    assert not may_ask(model, (word,))


def test_each_name_of_a_tier_is_compared():
    assert may_ask("claude-sonnet-4-5", ("haiku", "sonnet"))
    assert not may_ask("claude-sonnet-4-5", ())
