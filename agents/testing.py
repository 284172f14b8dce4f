def check_agent_shapes(agent, spec):
    """Stub."""
