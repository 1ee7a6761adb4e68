"""Processes of an installation: worker, web server, schedules, housekeeping, backup."""
