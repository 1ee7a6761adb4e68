"""Which migrations a database has, and the tables that follow from them."""

from __future__ import annotations

from collections.abc import Iterable

from django.apps import apps as today
from django.apps.registry import Apps
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

Migration = tuple[str, str]


def unknown_among(migrations: Iterable[Migration]) -> list[str]:
    """Those that only a newer version has."""
    known = MigrationLoader(None).disk_migrations
    return [f"{app}.{name}" for app, name in migrations if (app, name) not in known]


def last_of_each(migrations: Iterable[Migration]) -> list[Migration]:
    """Of each application the last that was applied: the others are before it."""
    graph, applied = MigrationLoader(None).graph, set(migrations)
    return [
        node
        for node in sorted(applied)
        if not any(
            child.key in applied and child.key[0] == node[0]
            for child in graph.node_map[node].children
        )
    ]


def apps_of(alias: str) -> Apps:
    """The models as this database has them, which may be those of an older version."""
    executor = MigrationExecutor(connections[alias])
    if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return today
    applied = executor.loader.applied_migrations
    return executor.loader.project_state(last_of_each(applied)).apps


def migrate_to(targets: list[Migration]) -> Apps:
    """An empty database, without what follows a whole upgrade; the models as they then are."""
    return MigrationExecutor(connection).migrate(targets).apps
