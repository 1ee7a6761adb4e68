"""Encrypted archive of transcripts."""
