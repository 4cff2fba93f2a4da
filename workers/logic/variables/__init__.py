"""What an event does to the variable store of an execution."""
