"""Flow control in the simulation: limits and tokens in plain Python, the promises about groups, and small worlds of them."""
