from __future__ import annotations

from django.db import models

from sessions_app.models.session import Session


class SearchText(models.Model):
    """The words by which a session is found, its cycle's among them.

    Written by triggers of the database alone (`search_triggers`), in the transaction of what it
    repeats: whoever changes a session, its words follow. Behind it lies an index of all groups of
    three letters, so that any part of a word is found without reading every row.
    """

    session = models.OneToOneField(
        Session, on_delete=models.CASCADE, primary_key=True, related_name="search_text"
    )
    text = models.TextField()

    def __str__(self) -> str:
        return f"Words of session {self.session_id}"
