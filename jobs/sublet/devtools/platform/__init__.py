"""`sublet dev`: a function platform on one machine, in one terminal."""
