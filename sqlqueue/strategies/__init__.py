"""How a row is held while it is in work: one small class each, chosen by the declaration alone."""
