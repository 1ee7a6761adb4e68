"""Decides what a tier may execute. Pure functions without I/O."""
