"""Redaction of secrets in text, and encryption of stored secrets."""
