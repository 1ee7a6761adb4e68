"""Plays scripted incidents on the real CLI."""
