"""Training in one process: the loop, its run directory, and the `retrax` command."""
