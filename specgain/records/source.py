"""Files from the world, opened with care: text of any encoding, lines of any length, JSON that may be broken.

Everything that comes out has been checked: counts are whole and not negative, times are finite, a key occurs once.
A file is read front to back in blocks, so memory does not grow with its size.
"""

import codecs
import csv
import io
import json
import math
import re
from pathlib import Path

BLOCK = 1 << 20  # bytes read at a time
LINE_MAX = 1 << 20  # a longer line is no line of an engine's log: it is left out and counted
DOCUMENT_MAX = 256 << 20  # one JSON document must fit in memory
COUNT_MAX = 1 << 53  # above this a float no longer holds every whole number
ANSI = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
UTF16 = ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class RecordError(ValueError):
    """Input that cannot be used; the message says what, where, and what would be right."""


class Warn(tuple):
    """A warning as (code, text): the code is stable, the text is for people."""

    __slots__ = ()

    def __new__(cls, code, text):
        return super().__new__(cls, (code, text))

    @property
    def code(self):
        return self[0]

    def to_json(self):
        """Return {"code": …, "text": …}."""
        return {"code": self[0], "text": self[1]}


# ------------------------------------------------------------------------------------------------------- numbers


def count(value, name):
    """Return `value` as an int if it is a whole number ≥ 0 below 2^53 (2.0 counts as 2), else raise RecordError."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole and not (isinstance(value, float) and value.is_integer()):
        raise RecordError(f"{name} = {_quoted(value)} is not a whole number")
    if not 0 <= value < COUNT_MAX:
        raise RecordError(f"{name} = {shown(value)} is outside the range of a count, 0 to 2^53")
    return int(value)


def real(value, name, low=0.0, high=math.inf):
    """Return `value` as a float if it is finite and in [low, high], else raise RecordError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(as_float(value)):
        raise RecordError(f"{name} = {_quoted(value)} is not a finite number")
    if not low <= value <= high:
        raise RecordError(f"{name} = {shown(value)} is outside its range, {low:g} to {high:g}")
    return float(value)


def _quoted(value):
    """Return `value` for a message; text stands in quotes and is named, since "19" looks like a number."""
    return f'"{shown(value)}" (text)' if isinstance(value, str) else shown(value)


def as_float(value):
    """Return float(value), or inf for a whole number too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def shown(value, limit=60):
    """Return `value` as a short printable text for a message."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except ValueError:  # a whole number with thousands of digits
        text = "a number with thousands of digits"
    return text if len(text) <= limit else text[: limit - 1] + "…"


# --------------------------------------------------------------------------------------------------------- files


class Source:
    """One file: `name` for messages, `file` to read bytes from, `notes` for what was odd about it.

    `data` stands for the file's content where there is no file. Raises RecordError for a file that is missing, a folder, empty, compressed or binary.
    """

    def __init__(self, path, data=None):
        self.path, self.name, self.notes = Path(path), str(path), []
        try:
            self.file = open(self.path, "rb") if data is None else io.BytesIO(data)
        except (OSError, ValueError) as error:
            raise RecordError(f"{self.name}: {getattr(error, 'strerror', None) or error}") from None
        try:
            head = self.file.read(4096)
            self.file.seek(0)
            self._check_head(head)
        except OSError as error:
            self.file.close()
            raise RecordError(f"{self.name}: {error.strerror or error}") from None
        except RecordError:
            self.file.close()
            raise

    def _check_head(self, head):
        if not head.strip():
            raise RecordError(f"{self.name}: the file is empty")
        if head.startswith(b"\x1f\x8b"):
            raise RecordError(f"{self.name}: the file is compressed (gzip); unpack it first")
        for mark, encoding in UTF16:
            if head.startswith(mark):
                return self._recode(encoding)
        if head.startswith(codecs.BOM_UTF8):
            self.file.seek(len(codecs.BOM_UTF8))
        if b"\x00" in head:
            raise RecordError(f"{self.name}: the file is binary, not text")

    def _recode(self, encoding):
        """Turn a UTF-16 file (as Windows shells write it) into UTF-8 in memory."""
        text = self.file.read(DOCUMENT_MAX + 1)
        self.file.close()
        if len(text) > DOCUMENT_MAX:
            raise RecordError(f"{self.name}: UTF-16 text over {DOCUMENT_MAX >> 20} MB; convert it to UTF-8 first")
        self.file = io.BytesIO(text.decode(encoding, errors="replace").encode())

    def blocks(self):
        """Yield (offset, bytes) blocks that end at a line end; over-long lines are left out and noted."""
        start, tail, skipping, dropped = self.file.tell(), b"", False, 0
        while chunk := self.file.read(BLOCK):
            if skipping:
                line_end = chunk.find(b"\n") + 1
                skipping, start = not line_end, start + (line_end or len(chunk))
                chunk = chunk[line_end:] if line_end else b""
            tail += chunk
            end = tail.rfind(b"\n") + 1
            if end:
                yield start, tail[:end]
                start, tail = start + end, tail[end:]
            if len(tail) > LINE_MAX:
                start, tail, skipping, dropped = start + len(tail), b"", True, dropped + 1
        if tail:
            yield start, tail
        if dropped:
            self.notes.append(Warn("long-lines", f"{self.name}: {dropped} lines over {LINE_MAX >> 20} MB left out"))

    def section(self, offset, size=1 << 15):
        """Return up to `size` bytes from `offset` on as text, without moving the reading place."""
        place = self.file.tell()
        self.file.seek(offset)
        text = self.file.read(size)
        self.file.seek(place)
        return clean(text)

    def whole(self):
        """Return the rest of the file as text; raises RecordError above the size of one document."""
        text = self.file.read(DOCUMENT_MAX + 1)
        if len(text) > DOCUMENT_MAX:
            raise RecordError(f"{self.name}: over {DOCUMENT_MAX >> 20} MB in one document; give one record per line")
        return clean(text)

    def close(self):
        self.file.close()


def clean(text):
    """Return bytes as text, without terminal colours; bytes that are not UTF-8 become U+FFFD."""
    return ANSI.sub(b"", text).decode("utf-8", errors="replace")


def marked_lines(source, markers):
    """Yield (marker, offset of the marker, line as text, is_cut) for every line that holds one of `markers` (bytes).

    One pass with the speed of `bytes.find`; lines without a marker are never looked at. `is_cut` is true for a last
    line without a line end, which may have been cut while it was written.
    """
    for start, block in source.blocks():
        for at, marker in _places(block, markers):
            begin, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
            begin = block.rfind(b"\r", begin, at) + 1 or begin  # a progress bar overwrites its line
            yield marker, start + at, clean(block[begin : end if end >= 0 else len(block)]).rstrip(), end < 0


def _places(block, markers):
    """Return the sorted (place, marker) pairs of all markers in `block`, each marker at most once a line."""
    places = []
    for marker in markers:
        at = block.find(marker)
        while at >= 0:
            places.append((at, marker))
            end = block.find(b"\n", at)
            at = block.find(marker, end) if end >= 0 else -1
    return sorted(places)


# ---------------------------------------------------------------------------------------------------------- JSON


def _pairs(pairs):
    """Return the pairs of a JSON object as a dict; a key that occurs twice has no one value, so it is refused."""
    found = {}
    for key, value in pairs:
        if key in found:
            raise RecordError(f"the key {shown(key)} occurs more than once in one object")
        found[key] = value
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs)
GAP = re.compile(r"[\s,]*")


def parse_json(text):
    """Return the value of a JSON text, all of it; raises RecordError with the reason."""
    value, end = _decode(text, GAP.match(text).end())
    if text[end:].strip():
        raise RecordError(f"more text follows the JSON value at character {end}")
    return value


def _decode(text, start):
    try:
        return _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise RecordError(f"broken JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise RecordError("JSON nested too deeply to be a record") from None
    except RecordError:
        raise
    except ValueError as error:  # a whole number with thousands of digits
        raise RecordError(f"JSON number out of range: {error}") from None


def json_values(source):
    """Yield the JSON values of a file: one document, one value a line, or values written one after another.

    What is cut at the end is left out and noted (so is the first line of a file with one value a line, since logs are
    rotated); a file without a whole value raises RecordError that says where it breaks.
    """
    first = clean(source.file.readline(DOCUMENT_MAX))
    try:
        value = parse_json(first)
    except RecordError:
        yield from _documents(source, first + source.whole())
        return
    yield value
    broken = []
    for number, line in enumerate(iter(lambda: source.file.readline(DOCUMENT_MAX), b""), start=2):
        yield from _line_value(clean(line), number, broken)
    if broken:
        source.notes.append(_left_out(source, f"{len(broken)} of {number} lines", broken[0]))


def _line_value(line, number, broken):
    """Yield the value of a line, if it is whole; else add the reason to `broken`."""
    if line.strip():
        try:
            yield parse_json(line)
        except RecordError as error:
            broken.append(f"line {number}: {error}")


def _documents(source, text):
    """Return the values of a text that is not one value a line."""
    values, at = [], 0
    try:
        while (at := GAP.match(text, at).end()) < len(text):
            value, at = _decode(text, at)
            values.append(value)
    except RecordError as error:
        if values:
            source.notes.append(_left_out(source, f"what follows value {len(values)}", error))
            return values
        broken = []
        for number, line in enumerate(text.splitlines(), start=1):
            values += _line_value(line, number, broken)
        if len(broken) > 2 or not values:
            raise RecordError(f"{source.name}: {error}") from None
        source.notes.append(_left_out(source, f"{len(broken)} lines", broken[0]))
    return values


def _left_out(source, what, reason):
    return Warn("left-out", f"{source.name}: {what} left out, no whole JSON ({reason})")


# ----------------------------------------------------------------------------------------------------------- CSV


def csv_rows(text, name):
    """Return the rows of a CSV text as dicts of texts; raises RecordError unless all have the header's columns."""
    try:
        table = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error as error:
        raise RecordError(f"{name}: no CSV ({error})") from None
    header = [cell.strip() for cell in table[0]] if table else []
    if len(set(header)) < len(header):
        raise RecordError(f"{name}: a column name occurs twice in the header")
    if len(table) < 2:
        raise RecordError(f"{name}: the file has no rows under its header")
    for number, row in enumerate(table[1:], start=2):
        if len(row) != len(header):
            raise RecordError(f"{name}: row {number} has {len(row)} columns, the header {len(header)}")
    return [dict(zip(header, row, strict=True)) for row in table[1:]]
