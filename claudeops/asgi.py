"""The web server's entry point: static files by WhiteNoise, everything else by Django."""

import os

from django.core.asgi import get_asgi_application

from claudeops.static_files import with_static_files

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "claudeops.settings")

application = with_static_files(get_asgi_application())
