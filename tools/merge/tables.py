"""Markdown: headings name a place, and tables are merged row by row."""

import re
from collections import Counter
from dataclasses import dataclass

from tools.merge.lines import hunks, merge_text, split_lines
from tools.merge.model import Conflict, Site

_HEADING = re.compile(rb"(#{1,6})\s+(.*?)\s*#*\s*$")
_RULE = re.compile(rb"\|?[\s:|-]+\|?\s*$")


@dataclass(frozen=True)
class _Table:
    """A table's rows, and where its first row stands."""

    name: str
    head: bytes
    line: int
    rows: list[bytes]


def cells(row: bytes) -> list[bytes]:
    """Return a table row's cells without the blanks around them."""
    return [cell.strip() for cell in re.split(rb"(?<!\\)\|", row.strip().strip(b"|"))]


def headings(data: bytes) -> list[str]:
    """Return for each line the headings that it stands under, from the top, "" before the first."""
    names: list[str] = []
    levels: dict[int, str] = {}
    current = ""
    fenced = False
    for line in split_lines(data):
        if line.lstrip().startswith((b"```", b"~~~")):
            fenced = not fenced
        found = None if fenced else _HEADING.match(line)
        if found:
            depth = len(found[1])
            levels = {level: name for level, name in levels.items() if level < depth}
            levels[depth] = found[2].decode(errors="replace")
            current = " > ".join(name for _, name in sorted(levels.items()))
        names.append(current)
    return names


def _split(data: bytes) -> tuple[list[bytes], list[_Table]]:
    """Return the lines with each table's rows taken out, and the tables."""
    lines = split_lines(data)
    names = headings(data)
    rest: list[bytes] = []
    tables: list[_Table] = []
    seen: Counter[tuple[str, bytes]] = Counter()
    k = 0
    while k < len(lines):
        rest.append(lines[k])
        is_rule = k and b"-" in lines[k] and _RULE.match(lines[k]) and b"|" in lines[k]
        k += 1
        if not is_rule or b"|" not in lines[k - 2]:
            continue
        start = k
        while k < len(lines) and lines[k].lstrip().startswith(b"|"):
            k += 1
        head = b"|".join(cells(lines[start - 2]))
        seen[names[start - 1], head] += 1
        name = f"{names[start - 1]}\0{seen[names[start - 1], head]}"
        tables.append(_Table(name, head, start + 1, list(lines[start:k])))
        rest.append(b"\0table %d\n" % (len(tables) - 1))
    return rest, tables


def _first_cell(row: bytes) -> bytes:
    return cells(row)[0]


def merge_tables(
    path: str, base: bytes, patched: bytes, target: bytes
) -> tuple[bytes | None, list[Conflict]]:
    """Merge Markdown: tables by row, everything else by lines.

    A row is known by its first cell. Tables are known by their heading and their head row.

    Returns:
        The merged bytes, or None and the conflicts.
    """
    if b"\0" in base + patched + target:
        site = Site(path, "", 1)
        return None, [Conflict("a file with NUL bytes is no Markdown", site, site)]
    sides = [_split(side) for side in (base, patched, target)]
    names = [[table.name for table in tables] for _, tables in sides]
    common = _name_tables(sides)
    text = merge_text(*(b"".join(lines) for lines in common))
    if text is None:
        site = Site(path, "", 1)
        return None, [Conflict("changed differently on both sides, outside the tables", site, site)]
    by_name = [
        dict(zip(own, tables, strict=True)) for own, (_, tables) in zip(names, sides, strict=True)
    ]
    conflicts = [
        Conflict("the target has no counterpart of the table", Site(path, heading, o.line), None)
        for name, o in by_name[1].items()
        for heading in [name.partition("\0")[0]]
        if name not in by_name[2] and name in by_name[0] and by_name[0][name].rows != o.rows
    ]
    out: list[bytes] = []
    for line in split_lines(text):
        if not line.startswith(b"\0"):
            out.append(line)
            continue
        name = line[1:-1].decode()
        b, o, t = (tables.get(name) for tables in by_name)
        if o is None or t is None:
            out += (o or t or _Table("", b"", 0, [])).rows
        elif b is None:
            if o.rows != t.rows:
                sites = [Site(path, name.partition("\0")[0], x.line) for x in (o, t)]
                conflicts.append(Conflict("a table added differently on both sides", *sites))
            out += t.rows
        else:
            out += _rows(path, b, o, t, conflicts)
    return (None if conflicts else b"".join(out)), conflicts


def _name_tables(sides: list[tuple[list[bytes], list[_Table]]]) -> list[list[bytes]]:
    named = []
    for lines, tables in sides:
        at = iter(tables)
        named.append(
            [
                b"\0" + next(at).name.encode() + b"\n" if line.startswith(b"\0table ") else line
                for line in lines
            ]
        )
    return named


def _rows(path: str, b: _Table, o: _Table, t: _Table, conflicts: list[Conflict]) -> list[bytes]:
    heading = t.name.partition("\0")[0]
    here = Site(path, heading, t.line)
    rows = list(t.rows)
    if b.rows == o.rows:
        return rows
    if b.rows == t.rows and b.head == t.head:
        return o.rows
    for change in hunks([row.strip() for row in b.rows], [row.strip() for row in o.rows]):
        old, new = b.rows[change.a0 : change.a1], o.rows[change.b0 : change.b1]
        written = Site(path, heading, o.line + change.b0)
        try:
            _apply(rows, old, new, o, t, change.b0)
        except ValueError as problem:
            conflicts.append(Conflict(str(problem), written, here))
    return rows


def _find(rows: list[bytes], row: bytes) -> int | None:
    same = [k for k, other in enumerate(rows) if _first_cell(other) == _first_cell(row)]
    if len(same) > 1:
        same = [k for k in same if cells(rows[k]) == cells(row)]
        if len(same) > 1:
            raise ValueError("more than one row of the target looks like it")
    return same[0] if same else None


def _apply(
    rows: list[bytes], old: list[bytes], new: list[bytes], o: _Table, t: _Table, at: int
) -> None:
    keys = {_first_cell(row) for row in new}
    for row in old:
        if _first_cell(row) not in keys:
            _remove(rows, row, replaced=bool(new))
    for k, row in enumerate(new):
        before = next((x for x in old if _first_cell(x) == _first_cell(row)), None)
        found = _find(rows, row)
        if found is not None:
            theirs = cells(rows[found])
            if theirs == cells(row):
                continue
            if before is None or theirs != cells(before):
                raise ValueError("row changed differently on both sides")
            rows[found] = row
        elif before is not None:
            raise ValueError("the target has no counterpart of the row it changes")
        else:
            if o.head != t.head:
                raise ValueError("the table has other columns in the target")
            _insert(rows, row, o.rows, at + k)


def _remove(rows: list[bytes], row: bytes, *, replaced: bool) -> None:
    found = _find(rows, row)
    if found is None:
        if replaced:
            raise ValueError("the target has no counterpart of the row it replaces")
    elif cells(rows[found]) != cells(row):
        raise ValueError("row deleted by the patch, changed in the target")
    else:
        del rows[found]


def _insert(rows: list[bytes], row: bytes, written: list[bytes], at: int) -> None:
    for step, shift in ((-1, 1), (1, 0)):
        k = at + step
        while 0 <= k < len(written):
            found = _find(rows, written[k])
            if found is not None:
                ends = rows[found][len(rows[found].rstrip(b"\r\n")) :]
                line = row.rstrip(b"\r\n")
                if not ends and shift:  # the file ends here, without a line feed
                    newline = b"\r\n" if rows[0].endswith(b"\r\n") else b"\n"
                    rows[found] += newline
                rows.insert(found + shift, line + ends)
                return
            k += step
    if rows:
        raise ValueError("no neighbour of the row is left in the target")
    rows.append(row)


def doubled_rows(path: str, patched: bytes, target: bytes, merged: bytes) -> list[Conflict]:
    """Name each table row that the merge introduced though its table has one of that name."""

    def counts(data: bytes) -> Counter[tuple[str, bytes]]:
        return Counter(
            (table.name.partition("\0")[0], _first_cell(row))
            for table in _split(data)[1]
            for row in table.rows
        )

    before, own, now = counts(target), counts(patched), counts(merged)
    conflicts = []
    for place, count in now.items():
        if before[place] and count > before[place] and count > own[place]:
            site = Site(path, place[0], 1)
            name = place[1].decode(errors="replace")[:60]
            conflicts.append(Conflict(f"row {name!r} would stand there twice", site, site))
    return conflicts
