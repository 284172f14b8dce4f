"""The `retrax` command: one module for each subcommand, and what they share."""
