"""Chaos, benchmarks and screenshots, for developers. Not part of the wheel."""
