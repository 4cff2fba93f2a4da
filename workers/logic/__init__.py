"""The pure half: decisions over values. Nothing here awaits, reads a clock or draws a number."""
