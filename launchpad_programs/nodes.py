"""The nodes as plain classes: `step` does a little, `run` steps until told to stop.

They know nothing of Launchpad: the other nodes are objects with the same methods, be they clients
or the nodes themselves, so that a test, or a program of one thread, can drive them by hand. Each
has a module of its own, for a process to import no more than it needs.
"""

from .actor_node import ActorNode
from .counting import Counter
from .evaluator_node import EvaluatorNode
from .learner_node import LearnerNode

__all__ = ["ActorNode", "Counter", "EvaluatorNode", "LearnerNode"]
