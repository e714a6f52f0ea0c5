"""How many workers a pool is owed, and starting them: the summoner, invokers, signatures."""
