"""What runs the nodes of a program: threads of this process, Launchpad's processes, Ray's actors.

Nothing is imported here: `isolation` must come before NumPy.
"""
