"""Integer arithmetic that several layers need."""


def ceil_div(a: int, b: int) -> int:
    """Return ``a / b`` rounded up."""
    return -(-a // b)


def round_up(a: int, multiple: int) -> int:
    """Return the smallest multiple that is at least ``a``."""
    return ceil_div(a, multiple) * multiple
