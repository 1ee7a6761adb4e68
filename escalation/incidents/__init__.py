"""Records problems from the first sighting to the resolution."""
