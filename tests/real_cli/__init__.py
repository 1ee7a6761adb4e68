"""Tests that run the real `claude` binary against the scripted API on loopback."""
