"""Durations and sizes as text."""


def duration(seconds: float) -> str:
    """Return a duration as text, such as 12 ms, 3.4 s, 5 min, 7 h, 3 days."""
    if seconds < 0.9995:
        return f"{max(0, seconds) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for unit, size, least in (("s", 1, 90), ("min", 60, 90), ("h", 3600, 48)):
        if seconds / size < least:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:,.0f} days"


def size(number: int) -> str:
    """Return a number of bytes as text, in GiB, MiB or whole KiB."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number / 1024:.0f} KiB"
