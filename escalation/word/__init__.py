"""Word to people: what happened that they may want to know, and how it reaches them."""
