"""Renames stored values: the verdict "contain" to "isolate", the event kinds of the command policy,
and the key of the grants in their payloads. Each step is one statement on the database."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

KINDS = (("gate", "command"), ("gate_end", "command_end"))
# As Django writes JSON on SQLite. A quotation mark inside of a string is escaped, so that these
# texts can only be a key with its value.
PAYLOAD_TEXTS = (
    ('"verdict": "contain"', '"verdict": "isolate"'),
    ('"doors": [', '"grants": ['),
)
ON_SQLITE = """
    UPDATE sessions_app_sessionevent SET payload = replace(payload, %s, %s)
    WHERE source = 'supervisor' AND kind = %s AND instr(payload, %s) > 0
"""
ON_POSTGRESQL = """
    UPDATE sessions_app_sessionevent SET payload = payload - %(before)s::text || jsonb_build_object(
        %(after)s::text, payload -> %(before)s)
    WHERE source = 'supervisor' AND kind = %(kind)s AND jsonb_typeof(payload) = 'object'
        AND jsonb_exists(payload, %(before)s)
"""
VERDICTS_ON_POSTGRESQL = """
    UPDATE sessions_app_sessionevent SET payload = payload || jsonb_build_object('verdict', %s::text)
    WHERE source = 'supervisor' AND kind = %s AND payload ->> 'verdict' = %s
"""


def rename_values(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    rename(apps, schema_editor, 0, 1)


def restore_values(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    rename(apps, schema_editor, 1, 0)


def rename(apps: Apps, editor: BaseDatabaseSchemaEditor, old: int, new: int) -> None:
    verdicts, keys = ("contain", "isolate"), ("doors", "grants")
    counts = apps.get_model("sessions_app", "DailyVerdict").objects.filter(verdict=verdicts[old])
    counts.update(verdict=verdicts[new])
    kind = KINDS[0][old]
    with editor.connection.cursor() as cursor:
        if editor.connection.vendor == "postgresql":
            cursor.execute(VERDICTS_ON_POSTGRESQL, [verdicts[new], kind, verdicts[old]])
            words = {"before": keys[old], "after": keys[new], "kind": kind}
            cursor.execute(ON_POSTGRESQL, words)
        else:
            for pair in PAYLOAD_TEXTS:
                cursor.execute(ON_SQLITE, [pair[old], pair[new], kind, pair[old]])
    events = apps.get_model("sessions_app", "SessionEvent").objects.filter(source="supervisor")
    for pair in KINDS:
        events.filter(kind=pair[old]).update(kind=pair[new])


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0024_message_channel")]

    operations = [migrations.RunPython(rename_values, restore_values)]
