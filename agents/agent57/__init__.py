"""Agent57 (Badia et al. 2020): separate values, a family of policies, a bandit over them."""
