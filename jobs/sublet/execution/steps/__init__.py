"""The steps of a running attempt."""
