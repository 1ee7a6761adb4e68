"""Alerts from other systems: parsing, storing, judging, and the sources that send them."""
