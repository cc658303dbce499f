"""All payloads in one go: which, in which order, for how long, and what they said."""
