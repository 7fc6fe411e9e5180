"""How numbers are written, in tables, reports and on the command line."""

from __future__ import annotations


def signed(value: float) -> str:
    """Return the number with three decimals and its sign: +0.034, or 0.000 without one."""
    text = f"{abs(value):.3f}"
    if float(text) == 0.0:
        return text
    return f"{'−' if value < 0 else '+'}{text}"  # noqa: RUF001 -- the minus sign


def format_p(p: float) -> str:
    """Return 0.034, 0.0004, or < 0.0001 for what is smaller."""
    if p < 1e-4:  # noqa: PLR2004 -- below what the permutations can tell
        return "< 0.0001"
    return f"{p:.4f}" if p < 0.01 else f"{p:.3f}"  # noqa: PLR2004 -- digits that say something


def format_ms(milliseconds: float) -> str:
    """Return 0.4 ms, 12 ms or 1.6 s."""
    if milliseconds >= 1000:  # noqa: PLR2004 -- milliseconds in a second
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds:.1f} ms" if milliseconds < 10 else f"{milliseconds:.0f} ms"  # noqa: PLR2004 -- digits


def counted(n: int, noun: str) -> str:
    """Return 1 row, 2 rows, 3 queries."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"
