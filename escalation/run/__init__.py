"""Runs one session: plan, prepare, run, record, finish; and recovers what died."""
