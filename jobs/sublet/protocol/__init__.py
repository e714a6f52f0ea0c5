"""The protocol with Redis: calls, and the parsing of replies, without a connection."""
