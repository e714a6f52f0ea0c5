"""Tools for developers: the demo, `sublet dev`, the embedded server, conformance."""
