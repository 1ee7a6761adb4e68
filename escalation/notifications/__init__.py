"""Notifications: storing, routing to channels, sending, daily digests."""
