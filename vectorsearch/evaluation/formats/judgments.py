"""Read judgments: TREC's four columns, BEIR's three, JSON; what only looks like them is refused by its name."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from backends.errors import InvalidInput
from vectorsearch.evaluation.formats.columns import by_query, json_object
from vectorsearch.evaluation.formats.text_files import BLANK, Lines, numbered_lines, shown, split_blank
from vectorsearch.ingestion.documents import as_id

Qrels = dict[str, dict[str, int]]

_LONGEST_GRADE = 9  # digits, the sign included: the measures compute with C's integers
_GRADE = re.compile(r"([+-]?\d+)(?:\.0*)?", re.ASCII)
_QUERY_NAMES = re.compile(r"(?:query|topic|question|q)[-_ ]?(?:id|no|num|number|nr)?|qid", re.IGNORECASE)
_DOCUMENT_NAMES = re.compile(r"(?:corpus|doc|document|passage|p|d)[-_ ]?(?:id|no)", re.IGNORECASE)
_GRADE_NAMES = re.compile(r"score|rel(?:evan\w+)?(?:[-_ ]\w+)?|grade|label|judg\w*|qrel|rating", re.IGNORECASE)
_EXPECTED = "TREC has 4 (query, 0, document, grade), BEIR 3 (query, document, grade)"
_OTHER_WIDTHS = {
    1: "a list of ids is no judgments",
    5: "these are sampled or preference judgments (prels of statAP and MTC, prefs), which the measures here can't read",
    6: "this looks like a run: query, Q0, document, rank, score, tag",
}
_BEIR, _TREC = 3, 4
_FILLERS = frozenset({"0", "Q0", "q0"})  # what stands in TREC's second column, which nobody reads
_RANKED = 4  # so many documents with grades 1, 2, 3, 4 are ranks


@dataclass(frozen=True, slots=True)
class JudgmentFile:
    """Query id to {document id: grade}, in the order of the file, and what a reader of figures should know of it."""

    path: Path
    grades: Qrels
    notes: tuple[str, ...] = ()


def read_judgments(path: str | Path) -> JudgmentFile:
    """Return the judgments of a file.

    Columns are separated by any white space; those of BEIR by tabs alone if a header says so; or by commas, if the
    first line has no white space. A grade is a whole
    number, negative ones included. Lines that begin with `#` are comments, as for trec_eval. All lines have as many
    columns as the first.

    Raises:
        InvalidInput: the file can't be read or holds no judgment; a line is malformed; a pair is judged twice,
            differently; or the file is of another kind. The message names the line.
    """
    path = Path(path)
    reader = _Reader(path)
    lines = numbered_lines(path)
    for number, line in lines:
        try:
            if not reader.width and line.lstrip().startswith("{") and not _is_judgment(line):
                return JudgmentFile(path, _of_json(path, chain([(number, line)], lines)))
            reader.take(number, line.strip(BLANK))
        except InvalidInput as exc:
            raise InvalidInput(f"{path}, line {number}: {exc}") from exc
    return reader.result()


@dataclass
class _Reader:
    path: Path
    grades: Qrels = field(default_factory=dict)
    width: int = 0
    separator: str | None = None
    comments: list[int] = field(default_factory=list)
    repeated: int = 0
    seconds: dict[tuple[str, str], str] = field(default_factory=dict)
    lines: int = 0

    def take(self, number: int, line: str) -> None:
        """Take a line that isn't blank."""
        if line.startswith("#"):
            self.comments.append(number)
            return
        if not self.width:
            self.separator = "," if "," in line and len(line.split()) == 1 else None
        columns = line.split(self.separator) if self.separator else split_blank(line)
        if line.startswith("{") and self.width in (0, _BEIR) and not _are_columns(columns):
            columns = _row(line)
        if not self.width and (header := _header(line)):
            self.width = len(header)
            self.separator = "\t" if "\t" in line and self.width == _BEIR else self.separator
            return
        width = len(columns)
        if width not in (_BEIR, _TREC):
            hint = _OTHER_WIDTHS.get(width)
            raise InvalidInput(f"{width} columns: {_EXPECTED}" + (f"; {hint}" if hint else ""))
        if self.width not in (0, width):
            raise InvalidInput(f"{width} columns: {_EXPECTED}, and the lines before have {self.width}")
        self.width = width
        self.lines += 1
        self._judge(columns)

    def _judge(self, columns: list[str]) -> None:
        query, document, grade = columns[0].strip(BLANK), columns[-2].strip(BLANK), _grade(columns[-1].strip(BLANK))
        if not query or not document:
            raise InvalidInput("the query's or the document's id is empty")
        if self.width == _TREC:
            before = self.seconds.setdefault((query, document), columns[1])
            if before != columns[1] and document in _FILLERS:
                raise InvalidInput(f"{document!r} stands where the document is expected: {_EXPECTED}")
            if before != columns[1]:
                raise InvalidInput(
                    f"{query!r} and {document!r} are judged for {before!r} and again for {columns[1]!r}: judgments of "
                    "subtopics (diversity, ndeval), which the measures here can't read, or two files in one"
                )
        known = self.grades.setdefault(query, {})
        self.repeated += document in known
        if known.setdefault(document, grade) != grade:
            raise InvalidInput(f"{query!r} and {document!r} are judged twice, differently: {known[document]}, {grade}")

    def result(self) -> JudgmentFile:
        if not self.grades:
            raise InvalidInput(f"{self.path}: holds no judgments")
        self._refuse_other_columns()
        notes = []
        if self.comments:
            notes.append(f"{len(self.comments):,} lines are comments (#), the first is line {self.comments[0]}")
        if self.repeated:
            notes.append(f"{self.repeated:,} judgments come twice, with the same grade")
        if len(said := {*self.seconds.values()}) > 1:
            notes.append(f"the second column says {', '.join(sorted(said)[:4])} …: it is ignored, as by trec_eval")
        return JudgmentFile(self.path, self.grades, tuple(f"{self.path.name}: {note}" for note in notes))

    def _refuse_other_columns(self) -> None:
        """Refuse files whose columns have another order or meaning, which all their lines together tell."""
        documents = {document for grades in self.grades.values() for document in grades}
        if len(documents) == 1 and self.lines > 1 and documents <= _FILLERS:
            raise InvalidInput(
                f"{self.path}: {documents.pop()!r} stands where every line has its document: {self.width} columns are "
                f"expected as {_EXPECTED}"
            )
        if self.width == _BEIR and _are_ranks(self.grades):
            raise InvalidInput(
                f"{self.path}: the last column counts 1, 2, 3 … for each query: this looks like a run of MS MARCO "
                "(query, document, rank), not judgments"
            )


def _is_judgment(line: str) -> bool:
    """Return whether a line that begins as JSON does is one judgment, of three names or in columns."""
    return _row_names(line) is not None or _are_columns(split_blank(line))


def _are_columns(columns: list[str]) -> bool:
    return len(columns) in (_BEIR, _TREC) and _GRADE.fullmatch(columns[-1]) is not None


def _row_names(line: str) -> list[str] | None:
    """Return what a line of JSON calls query, document and grade, as MTEB writes them; None if it has no such three."""
    with suppress(InvalidInput):
        row = json_object(line)
        found = [
            next((name for name in row if pattern.fullmatch(name)), "")
            for pattern in (_QUERY_NAMES, _DOCUMENT_NAMES, _GRADE_NAMES)
        ]
        return found if all(found) else None
    return None


def _row(line: str) -> list[str]:
    names = _row_names(line)
    if names is None:
        raise InvalidInput(f"{shown(line)} has no query, document and grade, as the lines before: {_EXPECTED}")
    row = json_object(line)
    return [as_id(row[name]) for name in names[:2]] + [str(row[names[2]])]


def _header(line: str) -> list[str]:
    """Return the names of the columns if a line holds names, else nothing."""
    names = [name.strip() for name in line.split("\t")] if "\t" in line else line.replace(",", " ").split()
    if len(names) in (_BEIR, _TREC) and _QUERY_NAMES.fullmatch(names[0]) and _GRADE_NAMES.fullmatch(names[-1]):
        return names
    return []


def _grade(text: str) -> int:
    whole = _GRADE.fullmatch(text)
    if whole is None:
        raise InvalidInput(f"the grade is not a whole number: {shown(text)}")
    if len(whole[1]) > _LONGEST_GRADE:
        raise InvalidInput(f"the grade {shown(text)} is too large")
    return int(whole[1])


def _are_ranks(grades: Qrels) -> bool:
    counts = [sorted(each.values()) == list(range(1, len(each) + 1)) for each in grades.values()]
    return all(counts) and max(map(len, grades.values())) >= _RANKED


def _of_json(path: Path, lines: Lines) -> Qrels:
    qrels: Qrels = {}
    for query, grades in by_query(path, lines).items():
        for document, grade in grades.items():
            whole = isinstance(grade, int | float) and not isinstance(grade, bool) and float(grade).is_integer()
            if not whole or abs(grade) >= 10**_LONGEST_GRADE:
                raise InvalidInput(
                    f"{path}: {query!r} and {document!r}: the grade is not a whole number: {shown(grade)}"
                )
            qrels.setdefault(query, {})[document] = int(grade)
    if not qrels:
        raise InvalidInput(f"{path}: holds no judgments")
    return qrels
