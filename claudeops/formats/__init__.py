"""How times are written where no template says it: by one rule in the whole product."""
