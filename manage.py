#!/usr/bin/env python
"""The command line in a checkout, with Django's own commands: `python manage.py help`."""

import sys

if __name__ == "__main__":
    try:
        import django  # noqa: F401  (asked for first, to say what is missing)
    except ImportError:
        sys.exit("Django is not installed here. Run `make install`, then use .venv/bin/python.")
    from escalation.management.command_line import main

    main()
