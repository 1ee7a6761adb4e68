"""Rows are numbered in the order in which they are made, so a stretch of time is one of numbers."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Model

LARGEST_NUMBER = 2**63 - 1


def first_number_from(model: type[Model], field: str, moment: datetime) -> int:
    """The first row of this moment or later; larger than any where there is none."""
    later = model._default_manager.filter(**{f"{field}__gte": moment}).order_by(field, "pk")
    found = later.values_list("pk", flat=True).first()
    return LARGEST_NUMBER if found is None else int(found)
