"""Arguments, results and their schemas as JSON."""
