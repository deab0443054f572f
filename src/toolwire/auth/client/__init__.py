"""OAuth for clients at work: signing in, tokens kept and renewed, grants without a person."""
