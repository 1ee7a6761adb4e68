"""`python -m escalation.management` is `claudeops`, wherever it was installed."""

from escalation.management.command_line import main

main()
