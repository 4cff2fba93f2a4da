"""Durable memory as pure rules: commands over items in, outcomes, conflicts and new items out.

The memory worker, the simulation of the variable worker, the tests and the checker decide by this code.
"""
