"""Programs of many processes: actors or workers, a learner or a parameter server, an evaluator.

`python -m retrax.launchpad_programs AGENT ...` is `retrax launch AGENT ...`. Nothing heavy is
imported here: see `isolation`.
"""
