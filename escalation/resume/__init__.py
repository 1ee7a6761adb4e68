"""Continues a conversation in the next tier: by resume, or by handoff."""
