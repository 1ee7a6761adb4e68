"""Model fields for text from outside: a model, a tool, the CLI, the API, another service.

Such text may be longer than its column or contain characters that a database rejects (NUL on
PostgreSQL, unpaired surrogates everywhere). An error would roll back the whole transaction, for
example the end of a session. These fields make the text fit on every write (`save`, `update`,
`bulk_create`). Names, paths and rules that must not be shortened use Django's own fields and are
validated before they are stored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models.expressions import Combinable

if TYPE_CHECKING:
    # Django's classes are not generic at run time.
    _Field = models.Field[str | int | Combinable, str]
    _CharField = models.CharField[str | int | Combinable, str]
    _TextField = models.TextField[str | int | Combinable, str]
else:
    _Field, _CharField, _TextField = object, models.CharField, models.TextField

REFUSED = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\ufffd"


def fitted(text: str, longest: int | None = None) -> str:
    """Replace characters that databases reject, and cut the text to `longest` characters."""
    text = REFUSED.sub(REPLACEMENT, text)
    if longest is None or len(text) <= longest:
        return text
    return text[: longest - 1] + "…"


def _as_of_django(field: type, facts: tuple[str, str, Any, Any]) -> tuple[str, str, Any, Any]:
    """Describe a field to migrations as Django's own, because the column is the same."""
    name, _path, arguments, options = facts
    return name, f"django.db.models.{field.__name__}", arguments, options


class _Fitting(_Field):
    """Mixin that makes each value fit its column."""

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        value = super().pre_save(model_instance, add)
        if isinstance(value, str):
            value = fitted(value, self.max_length)
            setattr(model_instance, self.attname, value)
        return value

    def get_prep_value(self, value: Any) -> Any:
        """Fit values of lookups too, so that a row is found by the text it was saved with."""
        value = super().get_prep_value(value)
        return fitted(value, self.max_length) if isinstance(value, str) else value

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        return _as_of_django(type(self).__mro__[2], super().deconstruct())


def without_refused(value: Any) -> Any:
    """Replace the characters that databases reject in all texts of a JSON value."""
    if isinstance(value, str):
        return fitted(value)
    if isinstance(value, list | tuple):
        return [without_refused(item) for item in value]
    if isinstance(value, dict):
        return {without_refused(key): without_refused(item) for key, item in value.items()}
    return value


class OutsideCharField(_Fitting, _CharField):
    """`CharField` that cuts text to `max_length`."""


class OutsideTextField(_Fitting, _TextField):
    """`TextField` that replaces characters that databases reject."""


class OutsideJSONField(models.JSONField):
    """`JSONField` that replaces characters that databases reject."""

    def get_prep_value(self, value: Any) -> Any:
        return without_refused(super().get_prep_value(value))

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        return _as_of_django(models.JSONField, super().deconstruct())
