"""One file per verb: from a request to a response."""
