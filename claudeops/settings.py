"""Settings of Claude Ops, from the environment and `.env`: see docs/configuration.md.

Importing this module writes nothing.
"""

from __future__ import annotations

import logging
import os
from decimal import Decimal
from pathlib import Path

from csp.constants import NONE, SELF
from django.utils.functional import SimpleLazyObject

from claudeops import __version__, state
from claudeops.env import (
    Environment,
    own_address,
    read_dotenv,
    split_address,
    sqlite_database,
    tiers_from,
)
from claudeops.state import stored_encryption_keys, stored_secret_key
from escalation.tiers import QUESTION_TOOLS
from sessions_app.tiers import LOWEST_TIER, full_tiers

CLAUDEOPS_VERSION = __version__
BASE_DIR = state.BASE_DIR

ENV_FILE = state.env_file(os.environ)
NAMES_IN_ENV_FILE = read_dotenv(ENV_FILE)
env = Environment(os.environ, file=str(ENV_FILE), in_file=NAMES_IN_ENV_FILE)

# Two state directories are two independent installations.
CLAUDEOPS_STATE_DIR = env.path("CLAUDEOPS_STATE_DIR", state.state_directory(os.environ))
CLAUDEOPS_ENV_FILE = env.path(state.ENV_FILE_NAME, ENV_FILE)

# The tiers and their permissions.
CLAUDEOPS_TIERS = tiers_from(env)
TIER_NUMBERS = tuple(CLAUDEOPS_TIERS)

# Directories in which watches may work; the watch that the first start makes, and its defaults.
CLAUDEOPS_ROOTS = env.directories("CLAUDEOPS_ROOTS", (Path("/"),))
CLAUDEOPS_WORKDIR = env.directory("CLAUDEOPS_WORKDIR")
CLAUDEOPS_APPLY = env.text("CLAUDEOPS_APPLY")
CLAUDEOPS_INTERVAL = env.seconds("CLAUDEOPS_INTERVAL", 3600, multiple_of=60)
CLAUDEOPS_MAX_TIER = env.integer(
    "CLAUDEOPS_MAX_TIER", LOWEST_TIER, minimum=LOWEST_TIER, maximum=max(TIER_NUMBERS)
)
CLAUDEOPS_DRY_RUN = env.flag("CLAUDEOPS_DRY_RUN", default=True)
CLAUDEOPS_REQUIRE_APPROVAL = env.matching(
    "CLAUDEOPS_REQUIRE_APPROVAL",
    ",".join(map(str, full_tiers(TIER_NUMBERS))),
    rf"none|[{LOWEST_TIER}-{max(TIER_NUMBERS)}](\s*,\s*[{LOWEST_TIER}-{max(TIER_NUMBERS)}])*",
    "tiers like 3 or 2,3, or none",
)
CLAUDEOPS_APPROVAL_EXPIRES = env.seconds("CLAUDEOPS_APPROVAL_EXPIRES", 4 * 3600)
CLAUDEOPS_COMMAND_APPROVAL_EXPIRES = env.seconds("CLAUDEOPS_COMMAND_APPROVAL_EXPIRES", 30 * 60)
CLAUDEOPS_PLAN_SESSIONS = env.flag("CLAUDEOPS_PLAN_SESSIONS")

# In dollars; not set is no limit, 0 stops everything that costs.
CLAUDEOPS_BUDGET_CHAIN = env.optional_amount("CLAUDEOPS_BUDGET_CHAIN")
CLAUDEOPS_BUDGET_WATCH_DAY = env.optional_amount("CLAUDEOPS_BUDGET_WATCH_DAY")
CLAUDEOPS_BUDGET_DAY = env.optional_amount("CLAUDEOPS_BUDGET_DAY")
CLAUDEOPS_BUDGET_MONTH = env.optional_amount("CLAUDEOPS_BUDGET_MONTH")

# The CLI and its environment.
CLAUDEOPS_CLAUDE_BIN = env.text("CLAUDEOPS_CLAUDE_BIN")
CLAUDEOPS_CLAUDE_FROM_PATH = env.flag("CLAUDEOPS_CLAUDE_FROM_PATH")
CLAUDEOPS_API_RETRIES = env.integer("CLAUDEOPS_API_RETRIES", 4, minimum=0, maximum=20)
CLAUDEOPS_CLI_TELEMETRY = env.flag("CLAUDEOPS_CLI_TELEMETRY", default=True)
CLAUDEOPS_PASS_ENV = env.names("CLAUDEOPS_PASS_ENV")
CLAUDEOPS_PROMPTS_DIR = env.path("CLAUDEOPS_PROMPTS_DIR", state.RESOURCES / "prompts")
CLAUDEOPS_SCENARIOS_DIR = env.text("CLAUDEOPS_SCENARIOS_DIR")
CLAUDEOPS_SANDBOX = env.choice(
    "CLAUDEOPS_SANDBOX", "required", ("required", "off"), old={"auto": "required", "on": "required"}
)
CLAUDEOPS_FOLLOW_UP_TOOLS = env.names("CLAUDEOPS_FOLLOW_UP_TOOLS", QUESTION_TOOLS)

# Resume, retention, timeouts and limits of sessions.
CLAUDEOPS_RESUME_CONTEXT_THRESHOLD = env.share(
    "CLAUDEOPS_RESUME_CONTEXT_THRESHOLD", Decimal("0.80")
)
CLAUDEOPS_RESUME_MAX_AGE = env.seconds("CLAUDEOPS_RESUME_MAX_AGE", 24 * 3600)
CLAUDEOPS_MAX_CONTINUATIONS = env.integer("CLAUDEOPS_MAX_CONTINUATIONS", 2, minimum=0, maximum=20)
CLAUDEOPS_EVENT_RETENTION_DAYS = env.integer("CLAUDEOPS_EVENT_RETENTION_DAYS", 90, minimum=1)
CLAUDEOPS_IDLE_TIMEOUT = env.seconds("CLAUDEOPS_IDLE_TIMEOUT", 10 * 60)
CLAUDEOPS_TOOL_IDLE_TIMEOUT = env.seconds("CLAUDEOPS_TOOL_IDLE_TIMEOUT", 30 * 60)
CLAUDEOPS_MAX_INTERRUPTIONS = env.integer("CLAUDEOPS_MAX_INTERRUPTIONS", 2, minimum=0, maximum=20)
CLAUDEOPS_MAX_RATE_LIMIT_WAITS = env.integer(
    "CLAUDEOPS_MAX_RATE_LIMIT_WAITS", 3, minimum=0, maximum=20
)
CLAUDEOPS_RATE_LIMIT_RESERVE = env.optional_share("CLAUDEOPS_RATE_LIMIT_RESERVE")
CLAUDEOPS_MAX_SESSIONS = env.integer("CLAUDEOPS_MAX_SESSIONS", 4, minimum=1)
CLAUDEOPS_MAX_TIER3_SESSIONS = env.integer("CLAUDEOPS_MAX_TIER3_SESSIONS", 1, minimum=1)
CLAUDEOPS_BREAKER_FAILURES = env.integer("CLAUDEOPS_BREAKER_FAILURES", 3, minimum=1)
CLAUDEOPS_VERIFY_AFTER = env.seconds("CLAUDEOPS_VERIFY_AFTER", 5 * 60)
CLAUDEOPS_PING_URL = env.address("CLAUDEOPS_PING_URL")
CLAUDEOPS_ARCHIVE_DIR = env.text("CLAUDEOPS_ARCHIVE_DIR")
CLAUDEOPS_ARCHIVE_RETENTION_DAYS = env.integer("CLAUDEOPS_ARCHIVE_RETENTION_DAYS", 365, minimum=1)
# Encrypts the archive of transcripts and the addresses of channels. Hosts that share a database
# share the key.
CLAUDEOPS_ENCRYPTION_KEYS = env.fernet_keys("CLAUDEOPS_ENCRYPTION_KEY") or SimpleLazyObject(
    lambda: stored_encryption_keys(CLAUDEOPS_STATE_DIR)
)

# Labels by which a watch chooses this host, besides its name.
CLAUDEOPS_HOST_LABELS = env.matching(
    "CLAUDEOPS_HOST_LABELS", "", r"[\w.-]+(\s*,\s*[\w.-]+)*", "labels of this host like nas,lab"
)

# The web server.
CLAUDEOPS_HOST = env.text("CLAUDEOPS_HOST", "127.0.0.1")
CLAUDEOPS_PORT = env.integer("CLAUDEOPS_PORT", 8000, minimum=1, maximum=65535)
CLAUDEOPS_URL = env.address("CLAUDEOPS_URL") or own_address(CLAUDEOPS_HOST, CLAUDEOPS_PORT)
# Where alerts are taken besides CLAUDEOPS_PORT, and where senders reach it.
CLAUDEOPS_INGRESS = env.matching(
    "CLAUDEOPS_INGRESS", "", r"(\S+:[1-9][0-9]{0,4})?", "host:port, like 0.0.0.0:9009"
)
CLAUDEOPS_INGRESS_URL = (
    env.address("CLAUDEOPS_INGRESS_URL")
    or (CLAUDEOPS_INGRESS and own_address(*split_address(CLAUDEOPS_INGRESS)))
    or CLAUDEOPS_URL
)
# Read by /metrics; without it only this host may scrape.
CLAUDEOPS_METRICS_TOKEN = env.text("CLAUDEOPS_METRICS_TOKEN")
# Requests of one token of the API in a minute.
CLAUDEOPS_API_RATE = env.integer("CLAUDEOPS_API_RATE", 600, minimum=1, maximum=1_000_000)
# Where traces are sent, in the variables of OpenTelemetry.
_OTEL_URL = env.address("OTEL_EXPORTER_OTLP_ENDPOINT").rstrip("/")
OTEL_TRACES_URL = env.address("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or (
    _OTEL_URL and f"{_OTEL_URL}/v1/traces"
)
_HEADERS = (r"(\s*[\w.-]+\s*=[^,\r\n]*(,|$))*", "headers like name=value,other=value")
_OTEL_HEADERS = env.matching("OTEL_EXPORTER_OTLP_HEADERS", "", *_HEADERS)
OTEL_TRACES_HEADERS = (
    env.matching("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "", *_HEADERS) or _OTEL_HEADERS
)
CLAUDEOPS_TRACE_CONTENT = env.flag("CLAUDEOPS_TRACE_CONTENT")
CLAUDEOPS_ADMIN_USER = env.text("CLAUDEOPS_ADMIN_USER", "operator")
CLAUDEOPS_ADMIN_PASSWORD = env.text("CLAUDEOPS_ADMIN_PASSWORD")
CLAUDEOPS_HTTPS = env.flag("CLAUDEOPS_HTTPS")
DEBUG = env.flag("CLAUDEOPS_DEBUG")
SECRET_KEY = env.text("CLAUDEOPS_SECRET_KEY") or SimpleLazyObject(
    lambda: stored_secret_key(CLAUDEOPS_STATE_DIR)
)
ALLOWED_HOSTS = list(
    env.names("CLAUDEOPS_ALLOWED_HOSTS", ("localhost", "127.0.0.1", "[::1]", CLAUDEOPS_HOST))
)
CSRF_TRUSTED_ORIGINS = list(env.origins("CLAUDEOPS_TRUSTED_ORIGINS"))

INSTALLED_APPS = [
    "sessions_app",
    "escalation",
    "claudeops.apps.OpsAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "csp",
    "django_htmx",
    "django_q",
    "heroicons",
    "claudeops.apps.ClaudeOpsConfig",
]
# Benchmarks, chaos and screenshots exist only in a checkout.
if (Path(__file__).resolve().parent.parent / "tests" / "devtools").is_dir():
    INSTALLED_APPS.append("tests.devtools")

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "escalation.web.responses.plain_pages",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "sessions_app.access.permissions.AccessMiddleware",
    "claudeops.middleware.PlainInputMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "claudeops.urls"
ASGI_APPLICATION = "claudeops.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [state.RESOURCES / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "escalation.web.context_processors.rights",
                "escalation.web.context_processors.header_status",
                "escalation.web.context_processors.installation",
                "escalation.web.context_processors.navigation",
            ],
        },
    },
]

DATABASES = {
    "default": env.database(
        "DATABASE_URL", sqlite_database(CLAUDEOPS_STATE_DIR / "claudeops.sqlite3")
    )
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# A session stops at the time limit of its tier; the limits of the queue are a second line of
# defence. So: tier limit < timeout < retry, and one attempt, or a long session would start twice.
# The time in which a command waits for approval does not count, up to four times in a session.
LONGEST_WAIT_SECONDS = 4 * CLAUDEOPS_COMMAND_APPROVAL_EXPIRES
LONGEST_TIER_SECONDS = (
    max(tier.timeout_seconds for tier in CLAUDEOPS_TIERS.values()) + LONGEST_WAIT_SECONDS
)
CLAUDEOPS_QUEUE_TIMEOUT = env.seconds("CLAUDEOPS_QUEUE_TIMEOUT", LONGEST_TIER_SECONDS + 120)
CLAUDEOPS_QUEUE_RETRY = env.seconds("CLAUDEOPS_QUEUE_RETRY", CLAUDEOPS_QUEUE_TIMEOUT + 120)
Q_CLUSTER = {
    "name": "claudeops",
    "label": "Queue",
    "orm": "default",
    "workers": env.integer("CLAUDEOPS_WORKERS", 2, minimum=1, maximum=64),
    "timeout": CLAUDEOPS_QUEUE_TIMEOUT,
    "retry": CLAUDEOPS_QUEUE_RETRY,
    "max_attempts": 1,
    "ack_failures": True,
    "catch_up": False,
    # The broker sleeps until it is woken; polling is for lost wakeups and dead processes.
    "broker_class": "escalation.queue.broker.WakingBroker",
    "poll": 5,
    "guard_cycle": 5,
    "save_limit": 500,
    "log_level": "WARNING",
}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "web:overview"
LOGOUT_REDIRECT_URL = "login"
SESSION_COOKIE_NAME = "claudeops_session"
CSRF_COOKIE_NAME = "claudeops_csrf"
SESSION_COOKIE_HTTPONLY = True
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
# Pages load everything from this server: text from a hostile log that was not escaped could not
# load or run anything.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024  # also of bodies that no view reads: claudeops.middleware
FILE_UPLOAD_HANDLERS = ["claudeops.middleware.NoFiles"]

# For a proxy that ends TLS and sets X-Forwarded-Proto. Health checks on the machine use HTTP.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = CLAUDEOPS_HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if CLAUDEOPS_HTTPS else None
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
SECURE_HSTS_SECONDS = 30 * 24 * 3600 if CLAUDEOPS_HTTPS else 0
# HSTS for subdomains and preloading are decisions of the operator.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

LANGUAGE_CODE = "en"
TIME_ZONE = env.time_zone("CLAUDEOPS_TIME_ZONE", "UTC")
USE_TZ = True
USE_I18N = False
FORMAT_MODULE_PATH = "claudeops.formats"
STATIC_URL = "static/"

LOG_LEVEL = env.log_level("CLAUDEOPS_LOG_LEVEL", logging.INFO)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {
            "()": "sessions_app.text.PlainFormatter",
            "format": "{asctime} {levelname} {name}: {message}",
            "style": "{",
        }
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        "sessions_app": {"level": LOG_LEVEL},
        "escalation": {"level": LOG_LEVEL},
    },
}

CLAUDEOPS_VARIABLES = env.variables
CONFIGURATION_PROBLEMS = tuple(env.problems)
