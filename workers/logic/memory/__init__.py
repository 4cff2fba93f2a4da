"""What a batch of commands does to memory items: versions, conditions, types, conflicts."""
