"""Queries on stored sessions, cycles, incidents and services, for pages and commands."""
