"""Steps of jobs (results, sleeps, signals, calls), and streams of chunks."""
