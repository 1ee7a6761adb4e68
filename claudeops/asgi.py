"""Entry point of the web server."""

import os

from django.core.asgi import get_asgi_application

from claudeops.middleware import (
    with_answer_headers,
    with_body_limit,
    with_client_address,
    with_ingress_alone,
    with_static_files,
)
from claudeops.state import make_new_files_private

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "claudeops.settings")
make_new_files_private()

django = with_client_address(get_asgi_application())
application = with_answer_headers(with_body_limit(with_static_files(django)))
# For CLAUDEOPS_INGRESS: no page, no login, no admin.
ingress = with_answer_headers(with_body_limit(with_ingress_alone(django)))
