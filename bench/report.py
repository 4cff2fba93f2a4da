"""Rows -> a table for people, JSON for programs."""

from collections.abc import Iterable, Mapping, Sequence

from bench.figures import Row, Series, shown

Json = dict[str, object]


def as_json(machine: Mapping[str, object], rows: Iterable[Row]) -> Json:
    """Return everything that was measured."""
    return {"machine": dict(machine), "rows": [_row(row) for row in rows]}


def _row(row: Row) -> Json:
    return {
        "name": row.name,
        "work": row.work,
        "better": row.better,
        "ours": _series(row.ours),
        "limits": [_series(limit) for limit in row.limits],
        "ratio": None if row.ratio is None else _series(row.ratio),
        "aim": row.aim,
        "reached": row.reached,
        "notes": list(row.notes),
    }


def _series(series: Series) -> Json:
    return {
        "name": series.name,
        "unit": series.unit,
        "median": series.median,
        "spread": series.spread,
        "rounds": list(series.rounds),
    }


def as_table(machine: Mapping[str, object], rows: Sequence[Row]) -> str:
    """Return one block for each row: ours, each limit, the ratio and the aim."""
    lines = [", ".join(f"{name} {value}" for name, value in machine.items()), ""]
    for row in rows:
        lines.append(f"{row.name}: {row.work}")
        for series in (row.ours, *row.limits):
            spread = f"± {series.spread / 2:.0%} in {len(series.rounds)} rounds" if len(series.rounds) > 1 else ""
            lines.append(f"  {series.name:<52} {shown(series.median):>10} {series.unit:<10} {spread}".rstrip())
        if row.ratio is not None:
            lines.append(f"  {'ratio to the tightest limit':<52} {row.ratio.median:>10.2f}{_aim(row)}")
        lines += [f"  {note}" for note in row.notes]
        lines.append("")
    return "\n".join(lines)


def _aim(row: Row) -> str:
    if row.aim is None:
        return ""
    bound = "at least" if row.better == "high" else "at most"
    return f" {'':<10} aim {bound} {row.aim:g}: {'reached' if row.reached else 'not reached'}"
