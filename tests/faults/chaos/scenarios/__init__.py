"""The scenarios: each module registers its own."""
