"""Isolates the CLI and each of its commands, and holds the API key."""
