"""The web server's entry point. Static files come straight from the installed packages."""

import os

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "claudeops.settings")

application = ASGIStaticFilesHandler(get_asgi_application())
