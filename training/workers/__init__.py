"""Workers around a parameter server: they act, store and compute gradients; it applies them."""
