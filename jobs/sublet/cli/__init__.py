"""The command line. Before `bootstrap.ensure` it imports only the standard library."""
