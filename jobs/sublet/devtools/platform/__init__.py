"""`sublet dev`: the function platform on one machine, in one terminal. What is killed of it, the next trigger puts right."""
