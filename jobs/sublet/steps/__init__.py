"""Steps: named parts of a job whose results are kept, sleeps, and waits for signals."""
