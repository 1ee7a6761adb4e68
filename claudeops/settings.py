"""All settings of Claude Ops, from the environment and `.env`. docs/configuration.md has the table.

Importing this module reads and never writes.
"""

from __future__ import annotations

import logging
import os
from decimal import Decimal
from pathlib import Path

from django.utils.functional import SimpleLazyObject

from claudeops import __version__, places
from claudeops.body_limit import LONGEST_BODY
from claudeops.database_url import sqlite_database
from claudeops.env import Environment, read_dotenv
from claudeops.own_address import own_address
from claudeops.secret_key import stored_encryption_keys, stored_secret_key
from claudeops.tier_settings import tiers_from
from escalation.tiers import HIGHEST_TIER, LOWEST_TIER, QUESTION_TOOLS

CLAUDEOPS_VERSION = __version__
BASE_DIR = places.BASE_DIR

ENV_FILE = places.env_file(os.environ)
NAMES_IN_ENV_FILE = read_dotenv(ENV_FILE)
env = Environment(os.environ, file=str(ENV_FILE), in_file=NAMES_IN_ENV_FILE)

# Where everything lives: two state directories are two independent installations.
CLAUDEOPS_STATE_DIR = env.path("CLAUDEOPS_STATE_DIR", places.state_directory(os.environ))
CLAUDEOPS_ENV_FILE = env.path(places.ENV_FILE_NAME, ENV_FILE)

# Where watches may work, and what is looked after from the first start on, if anything.
CLAUDEOPS_ROOTS = env.directories("CLAUDEOPS_ROOTS", (Path("/"),))
CLAUDEOPS_WORKDIR = env.directory("CLAUDEOPS_WORKDIR")
CLAUDEOPS_INTERVAL = env.seconds("CLAUDEOPS_INTERVAL", 3600, multiple_of=60)
CLAUDEOPS_MAX_TIER = env.integer(
    "CLAUDEOPS_MAX_TIER", LOWEST_TIER, minimum=LOWEST_TIER, maximum=HIGHEST_TIER
)
CLAUDEOPS_DRY_RUN = env.flag("CLAUDEOPS_DRY_RUN", default=True)
CLAUDEOPS_APPROVAL = env.matching(
    "CLAUDEOPS_APPROVAL", "3", r"none|[1-3](\s*,\s*[1-3])*", "tiers like 3 or 2,3, or none"
)
CLAUDEOPS_APPROVAL_EXPIRES = env.seconds("CLAUDEOPS_APPROVAL_EXPIRES", 4 * 3600)
CLAUDEOPS_COMMAND_APPROVAL_EXPIRES = env.seconds("CLAUDEOPS_COMMAND_APPROVAL_EXPIRES", 30 * 60)
CLAUDEOPS_DRY_FORK = env.flag("CLAUDEOPS_DRY_FORK")

# Dollars; none is no limit, 0 stops everything that costs.
CLAUDEOPS_BUDGET_CHAIN = env.optional_amount("CLAUDEOPS_BUDGET_CHAIN")
CLAUDEOPS_BUDGET_WATCH_DAY = env.optional_amount("CLAUDEOPS_BUDGET_WATCH_DAY")
CLAUDEOPS_BUDGET_DAY = env.optional_amount("CLAUDEOPS_BUDGET_DAY")
CLAUDEOPS_BUDGET_MONTH = env.optional_amount("CLAUDEOPS_BUDGET_MONTH")

# The CLI and what reaches it.
CLAUDEOPS_CLAUDE_BIN = env.text("CLAUDEOPS_CLAUDE_BIN")
CLAUDEOPS_CLAUDE_FROM_PATH = env.flag("CLAUDEOPS_CLAUDE_FROM_PATH")
CLAUDEOPS_API_RETRIES = env.integer("CLAUDEOPS_API_RETRIES", 4, minimum=0, maximum=20)
CLAUDEOPS_PASS_ENV = env.names("CLAUDEOPS_PASS_ENV")
CLAUDEOPS_PROMPTS_DIR = env.path("CLAUDEOPS_PROMPTS_DIR", places.RESOURCES / "prompts")
CLAUDEOPS_SCENARIOS_DIR = env.text("CLAUDEOPS_SCENARIOS_DIR")
CLAUDEOPS_TIERS = tiers_from(env)
CLAUDEOPS_ROOMS = env.choice("CLAUDEOPS_ROOMS", "auto", ("auto", "on", "off"))
CLAUDEOPS_FOLLOW_UP_TOOLS = env.names("CLAUDEOPS_FOLLOW_UP_TOOLS", QUESTION_TOOLS)

# Continuity: when a conversation may be resumed, and how long its traces are kept.
CLAUDEOPS_RESUME_CONTEXT_THRESHOLD = env.share(
    "CLAUDEOPS_RESUME_CONTEXT_THRESHOLD", Decimal("0.80")
)
CLAUDEOPS_RESUME_MAX_AGE = env.seconds("CLAUDEOPS_RESUME_MAX_AGE", 24 * 3600)
CLAUDEOPS_MAX_CONTINUATIONS = env.integer("CLAUDEOPS_MAX_CONTINUATIONS", 2, minimum=0, maximum=20)
CLAUDEOPS_EVENT_RETENTION_DAYS = env.integer("CLAUDEOPS_EVENT_RETENTION_DAYS", 90, minimum=1)
CLAUDEOPS_SILENCE = env.seconds("CLAUDEOPS_SILENCE", 10 * 60)
CLAUDEOPS_TOOL_SILENCE = env.seconds("CLAUDEOPS_TOOL_SILENCE", 30 * 60)
CLAUDEOPS_MAX_INTERRUPTIONS = env.integer("CLAUDEOPS_MAX_INTERRUPTIONS", 2, minimum=0, maximum=20)
CLAUDEOPS_MAX_LIMIT_WAITS = env.integer("CLAUDEOPS_MAX_LIMIT_WAITS", 3, minimum=0, maximum=20)
CLAUDEOPS_LIMIT_RESERVE = env.optional_share("CLAUDEOPS_LIMIT_RESERVE")
CLAUDEOPS_MAX_SESSIONS = env.integer("CLAUDEOPS_MAX_SESSIONS", 4, minimum=1)
CLAUDEOPS_MAX_TIER3_SESSIONS = env.integer("CLAUDEOPS_MAX_TIER3_SESSIONS", 1, minimum=1)
CLAUDEOPS_BREAKER_FAILURES = env.integer("CLAUDEOPS_BREAKER_FAILURES", 3, minimum=1)
CLAUDEOPS_VERIFY_AFTER = env.seconds("CLAUDEOPS_VERIFY_AFTER", 5 * 60)
CLAUDEOPS_PING_URL = env.address("CLAUDEOPS_PING_URL")
CLAUDEOPS_ARCHIVE_DIR = env.text("CLAUDEOPS_ARCHIVE_DIR")
CLAUDEOPS_ARCHIVE_RETENTION_DAYS = env.integer("CLAUDEOPS_ARCHIVE_RETENTION_DAYS", 365, minimum=1)
# What is kept sealed: the transcripts' archive and the addresses to which word goes. Hosts that
# share a database share the key.
CLAUDEOPS_ENCRYPTION_KEYS = env.fernet_keys("CLAUDEOPS_ENCRYPTION_KEY") or SimpleLazyObject(
    lambda: stored_encryption_keys(CLAUDEOPS_STATE_DIR)
)

# More than one host: what this one is called, beside its name, by the watches that choose it.
CLAUDEOPS_HOST_LABELS = env.matching(
    "CLAUDEOPS_HOST_LABELS", "", r"[\w.-]+(\s*,\s*[\w.-]+)*", "labels of this host like nas,lab"
)

# The web server.
CLAUDEOPS_HOST = env.text("CLAUDEOPS_HOST", "127.0.0.1")
CLAUDEOPS_PORT = env.integer("CLAUDEOPS_PORT", 8000, minimum=1, maximum=65535)
CLAUDEOPS_URL = env.address("CLAUDEOPS_URL") or own_address(CLAUDEOPS_HOST, CLAUDEOPS_PORT)
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
    "claudeops.admin_config.OpsAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "django_q",
    "claudeops",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "claudeops.middleware.content_security_policy",
    "sessions_app.pages.plain_pages.plain_pages",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "sessions_app.access.guard.AccessMiddleware",
    "claudeops.plain_input.PlainInputMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "claudeops.urls"
ASGI_APPLICATION = "claudeops.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [places.RESOURCES / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "sessions_app.access.context_processors.rights",
                "sessions_app.pages.context_processors.glance",
                "escalation.web.context_processors.installation",
                "escalation.rehearsal.context_processors.scenarios",
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

# A tier stops itself at its own limit; the queue's limits only catch what went wrong with that.
# So: tier limit < timeout < retry, and one attempt, or a long tier would be started twice.
# Time in which a command waits for a person is not the tier's, up to four such times in a run.
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
    # It sleeps until it is woken. The rest is a safety net, and costs an idle machine next to
    # nothing: how often the queue is looked at unasked, and a dead process noticed.
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
LOGIN_REDIRECT_URL = "sessions_app:dashboard"
LOGOUT_REDIRECT_URL = "login"
SESSION_COOKIE_NAME = "claudeops_session"
CSRF_COOKIE_NAME = "claudeops_csrf"
SESSION_COOKIE_HTTPONLY = True
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = LONGEST_BODY
FILE_UPLOAD_HANDLERS = ["claudeops.body_limit.NoFiles"]

# Behind a proxy that speaks TLS and sets X-Forwarded-Proto itself. Monitors on the machine ask
# without it.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = CLAUDEOPS_HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if CLAUDEOPS_HTTPS else None
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
SECURE_HSTS_SECONDS = 30 * 24 * 3600 if CLAUDEOPS_HTTPS else 0
# Subdomains of this host and the browsers' built-in list are not ours to decide about.
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
            "()": "sessions_app.reading.log_lines.PlainFormatter",
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
