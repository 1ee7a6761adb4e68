"""Proves by effect that the sandboxes hold: `claudeops sandbox prove`."""
