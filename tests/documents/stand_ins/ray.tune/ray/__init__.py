"""Ray, for its Tune alone."""
