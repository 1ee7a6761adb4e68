"""Runs `claudeops` as `python -m escalation.management`."""

from escalation.management.command_line import main

main()
