"""Many processes: Launchpad programs of actors, learner and evaluator around Reverb."""
