"""Approvals: asking a person whether a tier may start or a command run, and taking the answer.

What follows an answer for a tier (it is queued, or its cycle ends) is in `next_step/approval`; how
a command waits for one is in `run/held_commands`.
"""
