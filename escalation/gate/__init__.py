"""What may run: one pure function over a policy and a parsed command. No I/O anywhere in here."""
