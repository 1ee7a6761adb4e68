"""Formats of times and numbers where no template gives one."""
