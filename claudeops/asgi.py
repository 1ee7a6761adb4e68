"""The web server's entry point: static files by WhiteNoise, everything else by Django."""

import os

from django.core.asgi import get_asgi_application

from claudeops.answer_headers import with_answer_headers
from claudeops.body_limit import with_body_limit
from claudeops.private_files import make_new_files_private
from claudeops.static_files import with_static_files

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "claudeops.settings")
make_new_files_private()

application = with_answer_headers(with_body_limit(with_static_files(get_asgi_application())))
