"""Records of real rounds: one schema (`roundlog`) that every measurement is written in."""
