"""Probes: looks at services that need no model, run by the worker."""
