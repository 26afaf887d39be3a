"""Checkpoints of other programs: tables of their variables' names, and loaders."""
