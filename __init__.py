"""retrax: Reactor, ACER, D4PG and Agent57 as pure JAX functions.

`retrax.losses` and `retrax.networks` are the building blocks, each usable alone. `retrax.agents`
puts them together into agents (one NamedTuple of pure functions each). `retrax.replay` stores and
selects experience, `retrax.environments` makes environments, `retrax.evaluation` measures and
draws, `retrax.experiments` trains in one process (the `retrax` command), and
`retrax.launchpad_programs` runs the same agents as many processes.
"""

__version__ = "0.1.0"
