"""What is in a run directory: config, lock, log, metrics, snapshots and how a run continues."""
