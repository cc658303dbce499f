"""From what the user typed to a running command: read it, plan it, race it, report it."""
