"""What travels: events, commands, outcomes and errors, as values without I/O."""
