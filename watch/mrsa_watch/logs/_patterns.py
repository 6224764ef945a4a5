"""Names that are no client's: those outside the pattern that most names of a log share.

A row of the server, or a column that counts epochs, is a client that hides the others.
What is none is not listed: each name fits the pattern of the majority, or waits for a
decision. The short lists serve names that are plain words, of which a pattern says
nothing. A number that lost its last digits, or a text that was cut, may be several
clients at once.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from mrsa_watch.logs import _words
from mrsa_watch.logs._identity import least_shared_float, names_nobody
from mrsa_watch.logs._names import text_of_cell
from mrsa_watch.logs._numbers import parse_decimal

_DIGITS = re.compile(r"\d+")
_HEXADECIMAL = re.compile(r"(?:0x)?[0-9a-f]+(?:[-:][0-9a-f]+)*")
_LEAST_HEXADECIMAL = 4  # digits: shorter ones are words too
_NEGATIVE = re.compile(r"-\d{1,7}")  # longer ones are random integers of 64 bits
_FREE = re.compile(r"[^\W\d_]{3,}")  # of several words, of which one may be a number
# kinds of patterns, from the specific to the general
_NUMBERED, _HEX, _LETTER, _WORDS = range(4)
Pattern = tuple[int, str]


def skeleton(text: str) -> str:
    """Return a name in small letters, with # for each of its numbers."""
    return _DIGITS.sub("#", text.casefold())


def _patterns_of(text: str) -> list[Pattern]:
    """Return all patterns that a name has."""
    small = text.casefold()
    patterns: list[Pattern] = []
    has_digits = any(map(str.isdigit, small))
    if has_digits:
        patterns.append((_NUMBERED, skeleton(small)))
    digits = re.sub("[^0-9a-f]", "", small.removeprefix("0x"))
    if _HEXADECIMAL.fullmatch(small) and len(digits) >= _LEAST_HEXADECIMAL:
        patterns.append((_HEX, re.sub("[0-9a-f]", "h", small)))
    if len(small) == 1 and small.isalpha():
        patterns.append((_LETTER, ""))
    if not has_digits and any(map(str.isalpha, small)):
        patterns.append((_WORDS, ""))
    return patterns


class Patterns:
    """The patterns of all names of a log.

    Args:
        texts: The names, each once.

    Attributes:
        usual: The pattern of at least half of the names; None if they have none.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._total = len(texts)
        self._negative = sum(bool(_NEGATIVE.fullmatch(text)) for text in texts)
        self._of = {text: _patterns_of(text) for text in texts}
        names: dict[Pattern, list[str]] = collections.defaultdict(list)
        for text, patterns in self._of.items():
            for pattern in patterns:
                names[pattern].append(text)
        self._counts = {
            pattern: len(alike)
            for pattern, alike in names.items()
            if pattern[0] != _HEX or _has_letters(alike)
        }
        usual = [
            pattern
            for pattern, count in self._counts.items()
            if count > 1 and 2 * count >= len(texts)
        ]
        self.usual = min(usual, key=self._rank, default=None)

    def _rank(self, pattern: Pattern) -> tuple[int, int]:
        """Return a key that sorts by specific patterns, then by frequent ones."""
        return max(pattern[0], _HEX), -self._counts[pattern]

    def is_usual(self, text: str) -> bool:
        """Return whether a name has the pattern of most names."""
        return self.usual is not None and self.usual in self._of[text]

    def is_of(self, text: str, kinds: Collection[int]) -> bool:
        """Return whether a name has the pattern of most, and of some kinds."""
        return self.usual is not None and self.usual[0] in kinds and self.is_usual(text)

    def is_odd(self, text: str, *, of_columns: bool) -> bool:
        """Return whether a name departs from most, and no second is frequent.

        Columns of words among numbered clients are flags and counts more often than
        clients.
        """
        if self.usual is None or self.is_usual(text):
            return False
        if self.usual[0] == _WORDS and _FREE.search(text) and " " in text.strip():
            return False
        for pattern in self._of[text]:
            count = self._counts.get(pattern, 0)
            is_frequent = count > 1 and 4 * count >= self._total
            if is_frequent and not (of_columns and pattern[0] == _WORDS):
                return False
        return True

    def is_odd_negative(self, text: str) -> bool:
        """Return whether a name, unlike most, is a negative integer as marks are."""
        return 2 * self._negative <= self._total and bool(_NEGATIVE.fullmatch(text))


def _has_letters(texts: Sequence[str]) -> bool:
    """Return whether hexadecimals of one length have letters; others are decimal."""
    digits = [text.casefold().removeprefix("0x") for text in texts]
    with_letters = sum(any(map(str.isalpha, text)) for text in digits)
    has_digits = any(map(str.isdigit, "".join(digits)))
    return has_digits and 4 * with_letters >= len(texts)


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ROLES = _set_of(
    """
    server aggregator coordinator controller admin administrator orchestrator master scheduler
    broker superlink superexec driver rank
    """
)
_NO_CLIENT = _set_of(
    """
    all total totals subtotal sum sums mean average averages avg median count counts global
    overall combined aggregate aggregated aggregation federated central centralized
    centralised ensemble baseline everyone everybody other others self system root localhost
    default dummy placeholder deleted removed anonymous unassigned summary result results test
    tests eval evaluation validation model header footer eof rows records grand round rounds
    client clients participant participants user users node nodes site sites device devices
    party parties cid id name no not of the available
    """
)
_COLUMNS = _set_of(
    """
    seed epoch epochs converged convergence flag flags checkpoint warmup eval evaluation
    evaluated validation quorum train trained training config iter iteration iterations step
    steps batch fold attempt retry retries phase stage mode split version duration elapsed
    note notes comment comments result results stop stopped stopping restart restarted resumed
    saved patience improved best ok total
    """
)
_FLAG = re.compile(
    r"(?:is|has|was|did|had|should|num|nr|n|no_of|number_of)_.+|.+_(?:flag|ok|count|total)|"
    r"unnamed(?:_\d+)?"
)
_CELL_ERROR = re.compile(r"#[A-Z/0]+[!?]")  # of spreadsheets
_LETTERS = re.compile(r"[^\W\d_]+")


def _words_of(text: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return [word.casefold() for word in _LETTERS.findall(apart)]


def says_no_client(text: str) -> bool:
    """Return whether the words of a name mean a role, a total or a heading.

    Examples:
        >>> texts = "Server", "grand total", "rank0", "anna", "c1"
        >>> [says_no_client(text) for text in texts]
        [True, True, True, False, False]
    """
    words = _words_of(text)
    is_role = not _ROLES.isdisjoint(words)
    is_figure = bool(words) and _NO_CLIENT.issuperset(words)
    return is_role or is_figure or bool(_CELL_ERROR.fullmatch(text))


def says_column(text: str, plain: str) -> bool:
    """Return whether a column's name is one of a training's figures."""
    return not _COLUMNS.isdisjoint(_words_of(text)) or bool(_FLAG.fullmatch(plain))


_EXPONENT = re.compile(r"[+-]?(\d+)(?:\.(\d*))?[eE]([+-]?\d{1,3})")
_CUT = re.compile(r"\.{3}$|^\.{3}|…")
_MONTH = (
    r"(?:jan|feb|f[ée]v|m[aä]r|mrz|apr|avr|ma[iy]|jun|juin|jul|juil|aug|ao[uû]t|sep|o[ck]t|nov|"
    r"de[cz]|d[ée]c)[a-z]{0,6}\.?"
)
_DATE = re.compile(  # what a spreadsheet makes of 1-2
    rf"\d{{1,2}}[-./ ]+{_MONTH}(?:[-./ ]+\d{{2,4}})?|{_MONTH}[-./ ]+\d{{1,4}}|"
    r"\d{4}-\d\d-\d\d(?:[ t]\d\d:\d\d(?::\d\d)?)?"
)
_LONG_DIGITS = 16
_SPARSE_FLOATS = 2**56  # from here on few integers are floats by chance


def is_rounded(name: Any) -> bool:
    """Return whether a number may stand for several integers: its last digits are lost.

    Examples:
        >>> names = "1.58E+18", "7.000e+00", 2.0**53, "12e4", "17"
        >>> [is_rounded(name) for name in names]
        [True, False, True, True, False]
    """
    if isinstance(name, float):
        # those that are safe were made integers when they were read
        return name.is_integer()
    if not isinstance(name, str):
        return False
    form = _EXPONENT.fullmatch(name.strip())
    value = parse_decimal(name)
    if form is None or value is None:
        return False
    unit = int(form[3]) - len(form[2] or "")
    return unit > 0 or abs(value) >= least_shared_float(1.0)


def not_whole(names: Iterable[Any], patterns: Patterns) -> list[Any]:
    """Return identifiers that may be several: rounded, cut short, or dates."""
    doubtful = []
    long = []
    for name in names:
        text = text_of_cell(name)
        is_number = is_rounded(name) and not patterns.is_of(text, [_HEX])
        if is_number or _CUT.search(text) or _DATE.fullmatch(text.casefold()):
            doubtful.append(name)
        elif re.fullmatch(r"-?\d+", text) and _is_long(text):
            long.append(name)
    texts = [text_of_cell(name) for name in long]
    ending = sum(text.endswith("000") for text in texts)
    are_floats = sum(
        abs(int(text)) >= _SPARSE_FLOATS and int(float(text)) == int(text)
        for text in texts
    )
    if 3 * max(ending, are_floats) >= 2 * len(long):
        doubtful += long
    return doubtful


def _is_long(text: str) -> bool:
    """Return whether an integer has more digits than spreadsheets and floats keep."""
    count = len(text.lstrip("-"))
    return count < 300 and (
        count >= _LONG_DIGITS or abs(int(text)) > least_shared_float(1.0)
    )


class Odd(NamedTuple):
    """Names that wait for a decision.

    Attributes:
        none: Those that say that they are no client: roles, figures of all, headings.
        missing: Those that stand for a missing value.
        unlike: Those that are unlike most names.
        rounded: Identifiers that are no longer whole.
    """

    none: list[Any]
    missing: list[Any]
    unlike: list[Any]
    rounded: list[Any]

    @property
    def all(self) -> list[Any]:
        """Return all of them."""
        return [*self.none, *self.missing, *self.unlike, *self.rounded]


def odd_clients(names: Sequence[Any]) -> Odd:
    """Return the names of clients that wait for a decision."""
    return _odd(names, says_no_client, of_columns=False)


def odd_columns(names: Sequence[str], plain: Callable[[str], str]) -> Odd:
    """Return the names of columns that wait for a decision.

    Args:
        names: The names.
        plain: Puts a name in small letters.
    """

    def says_none(text: str) -> bool:
        return says_no_client(text) or says_column(text, plain(text))

    def says_figure(text: str) -> bool:
        return _words.says(plain(text)) or _words.measures(plain(text))

    odd = _odd(names, says_none, of_columns=True)
    doubtful = {*odd.all}
    others = [name for name in names if name not in doubtful]
    return odd._replace(none=[*odd.none, *filter(says_figure, others)])


def _odd(
    names: Sequence[Any], says_none: Callable[[str], bool], *, of_columns: bool
) -> Odd:
    texts = {text_of_cell(name): name for name in names}
    patterns = Patterns(list(texts))
    odd = Odd([], [], [], not_whole(list(texts.values()), patterns))
    rounded = set(map(text_of_cell, odd.rounded))
    wrapped = _wrapped(texts)
    words = collections.Counter(word for text in texts for word in set(_words_of(text)))
    usual = {
        word for word, count in words.items() if 2 * count > len(texts) and count > 1
    }
    for text, name in texts.items():
        if text in rounded:
            continue
        if text in wrapped:
            odd.rounded.append(name)
        elif names_nobody(text) or patterns.is_odd_negative(text):
            odd.missing.append(name)
        elif (
            says_none(text)
            # one of a series that most names belong to: server-1, server-2
            and not patterns.is_of(text, [_NUMBERED, _HEX])
            and (of_columns or usual.isdisjoint(_words_of(text)))
        ):
            odd.none.append(name)
        elif patterns.is_odd(text, of_columns=of_columns):
            odd.unlike.append(name)
    return odd


def _wrapped(texts: Collection[str]) -> set[str]:
    """Return negative integers that are other names in too few bits."""
    negative = [text for text in texts if re.fullmatch(r"-\d{1,19}", text)]
    return {
        text
        for text in negative
        if str(int(text) + 2**32) in texts or str(int(text) + 2**64) in texts
    }
