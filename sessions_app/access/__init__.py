"""Who may what: the table, and the places that ask it."""
