"""Rooms: where the agent and each of its commands run, held by the kernel (bubblewrap)."""
