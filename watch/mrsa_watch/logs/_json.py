"""JSON from outside, an object a line: read within bounds, or refused by a sentence."""

from __future__ import annotations

import collections
import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NoReturn

from mrsa_watch.logs._names import fault, text_of_cell

MOST_LINE_BYTES = 2**27


def load_object(
    line: bytes, where: str, number: Callable[[str], Any]
) -> dict[str, Any]:
    """Return the JSON object of a line, as `load_value` does."""
    found = load_value(line, where, number)
    if not isinstance(found, dict):
        fault(where, "a JSON object", shown(found))
    return found


def load_value(line: bytes, where: str, number: Callable[[str], Any]) -> Any:
    """Return the JSON value of a line, or raise naming the place.

    Args:
        line: Its bytes.
        where: The place.
        number: Reads a number as it is written; a `ValueError` says what is wrong with
            it.
    """
    if len(line) > MOST_LINE_BYTES:
        fault(where, f"a line of at most {MOST_LINE_BYTES} bytes", f"{len(line)} bytes")
    with decoding(where, line):
        return _decoder(number).decode(line.decode())


def load_items(text: str, where: str, number: Callable[[str], Any]) -> Iterator[Any]:
    """Yield the elements of a JSON array one after the other, of which no more is held than one."""
    decoder, space = _decoder(number), re.compile(r"\s*")
    end = _after(text, 0, "[", where)
    is_first = True
    while True:
        start = space.match(text, end).end()  # type: ignore[union-attr]
        if text.startswith("]", start):
            break
        if not is_first:
            start = space.match(text, _after(text, start, ",", where)).end()  # type: ignore[union-attr]
        is_first = False
        with decoding(where, text[start : start + 60].encode(errors="replace")):
            item, end = decoder.raw_decode(text, start)
        yield item
    rest = text[start + 1 :].strip()
    if rest:
        fault(where, "one JSON array", f"{rest[:60]!r} behind it")


def _after(text: str, start: int, mark: str, where: str) -> int:
    if not text.startswith(mark, start):
        fault(where, f"{mark!r} in a JSON array", repr(text[start : start + 60]))
    return start + 1


def _decoder(number: Callable[[str], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_once,
        parse_int=number,
        parse_float=number,
        parse_constant=_no_constant,
    )


@contextlib.contextmanager
def decoding(where: str, line: bytes) -> Iterator[None]:
    """Name the place and the reason where JSON cannot be read."""
    try:
        yield
    except UnicodeDecodeError:
        fault(where, "UTF-8 text", repr(line[:60])[1:])
    except RecursionError:
        fault(where, "a JSON object", "values nested too deeply")
    except json.JSONDecodeError as error:
        fault(
            where,
            "a JSON object on one line",
            f"{line[:60].decode(errors='replace')!r}"
            f" ({error.msg} at column {error.colno})",
        )
    except ValueError as error:
        fault(where, "a JSON object of finite numbers and different keys", str(error))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"key {shown(twice(key for key, _ in pairs))} twice")
    return found


def twice(names: Iterable[str]) -> str:
    return collections.Counter(names).most_common(1)[0][0]


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


def shown(value: Any) -> str:
    """Return a value as a message shows it."""
    if isinstance(value, Fraction):
        return str(value)
    return ascii(value if not isinstance(value, str) else value[:100])


def examples(values: Sequence[object]) -> str:
    """Return the first of some values, in quotes."""
    shown = ", ".join(short(text_of_cell(value)) for value in values[:4]) or "no values"
    return shown + (", ..." if len(values) > 4 else "")


def short(text: str) -> str:
    """Return a text in quotes, of bounded length."""
    shown = repr(text)
    return shown if len(shown) <= 60 else shown[:56] + "...'"


# ---- What names and values of columns say: of who was in a sum, of weights, of times
# and metrics.

# names that may state the members of a sum, or their weights: as separate words, or as
# a whole
_SAYS = re.compile(
    r"status|succe|success|fail|outcome|accept|reject|dropped|dropout|complet|finish|"
    r"example|sample|weight"
    r"|(?<![a-z])(?:state|ok|okay|done|drop|drops|result|results|error|errors|err|exception|"
    r"abort(?:ed)?|cancel(?:l?ed)?|crash(?:ed)?|discard(?:ed)?|excluded?|included?|skip(?:ped)?|"
    r"aggregated|participated|responded|survived|survivor|straggler|timeout|timed_out|"
    r"disconnected|coef|coeff|coefficient|staleness|data_?size|dataset_?size|train_?size|"
    r"num_data|data_?points?)(?![a-z])"
)
_SAYS_ALONE = re.compile(
    r"(?:is_|was_|has_|client_|update_|in_)?(?:used|valid|invalid|active|alive|online|offline|"
    r"available|selected|received|submitted|reported|uploaded|late|missing|lost|sum|count|counts|"
    r"size|records|share|factor|n|n_k)"
)
_SAYS_WEIGHT = re.compile(
    r"example|sample|weight|size|num_data|data_?points?|records|coef"
    r"|(?<![a-z])(?:counts?|n|n_k|p|p_k|share|factor|alpha|scale|scaling|importance|contribution)"
    r"(?![a-z])|value"
)
_SAYS_NO = re.compile(
    r"fail|drop|error|(?<![a-z])err(?![a-z])|exception|reject|abort|cancel|crash|discard|exclud|"
    r"skip|timeout|timed_out|disconnect|offline|missing|lost|late|straggler|invalid"
)
_SAYS_SUM = re.compile(
    r"(?<![a-z])(?:run|seed|job|workflow|experiment|session|attempt|retry|retries|try|phase|stage|mode|task|"
    r"group|cluster|segment|component|aggregator|server|edge|hub|shard|region|zone|restart|"
    r"generation)(?![a-z])"
)
_VALUE_SAYS = re.compile(
    r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:ok|okay|success(?:ful)?|succeeded|completed?|"
    r"fail(?:ed|ure|s)?|finished|done|drop(?:ped|out|s)?|error|exception|accepted|rejected|"
    r"abort(?:ed)?|cancel(?:l?ed)?|crash(?:ed)?|discarded|excluded|included|skipped|aggregated|"
    r"survived|straggler|timeout|timed|disconnected|offline|missing|lost|late|killed|refused|"
    r"status|examples|samples)(?![a-z])"
)
_VALUE_SAYS_NO = re.compile(
    r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:fail|drop|error|exception|reject|abort|cancel|"
    r"crash|discard|exclud|skip|straggler|timeout|timed|disconnect|offline|missing|lost|late|"
    r"killed|refused|(?:none|not|no)(?![a-z])|unavailable|invalid|(?:in|un)complete|un\w+ful)"
)
_WORD = re.compile(r"[A-Za-z]{2,}")
_YES, _NO = {"1", "1.0", "true", "t", "yes", "y"}, {"0", "0.0", "false", "f", "no", "n"}
_NOTHING = {"", "none", "null", "nan", "nat", "na", "n/a", "-", "inf", "-inf", "infinity",
            "-infinity", "<na>"}  # fmt: skip
# steps of a round: those of which its sum is made, and others
_TRAINS = re.compile(
    r"^train|^fit$|^update$|upload|submit|aggregated$|contribut", re.IGNORECASE
)
_OTHERWISE = re.compile(
    r"eval|valid|test|infer|predict|quer|propert|get_|register|init|config|select|sampl|invit|"
    r"start|begin|began|join|download|sent|assign|offer",
    re.IGNORECASE,
)
# names of what a client is, or how old its model was: not of the sum that it is in
_SAYS_NEITHER = re.compile(
    r"(?<![a-z])(?:staleness|lag|version|role|country|model|browser)(?![a-z])"
)

_METRICS = re.compile(
    r"(?<![a-z])(?:loss|losses|acc|accuracy|auc|auroc|f1|precision|recall|mse|rmse|mae|mape|r2|"
    r"perplexity|ppl|bleu|dice|iou|norm|entropy|lr|learning_rate|memory|mem|cpu|gpu|ram|rss|"
    r"battery|bandwidth|throughput|energy|temperature|bytes|kb|mb|gb|mib|gib)(?![a-z])"
)
_RESOURCES = re.compile(
    r"mem|cpu|gpu|ram|rss|battery|bandwidth|throughput|bytes|kb|mb|gb|mib|gib"
)
_NO_METRIC = re.compile(
    r"(?<![a-z])(?:scale|scaling|factor|alpha|beta|gamma|lambda|coef|coeff|p|w|q|id|type|kind|bin|"
    r"bucket|rank|level|class|code|name|step|steps)(?![a-z])"
)
_SCORES = re.compile(r"acc|auc|auroc|f1|precision|recall|r2|bleu|dice|iou|cpu|gpu")
_TIMES = re.compile(
    r"(?:.*_)?(?:time|timestamp|ts|date|datetime|at|asctime|seconds|secs?|s|ms|millis|"
    r"milliseconds|us|ns|minutes|hours|duration|elapsed|latency|rtt|start|end|begin|created|updated|"
    r"uptime)(?:_(?:s|ms|us|ns|sec|secs|seconds|utc|unix|iso))?"
)
_HOSTS = re.compile(
    r"(?:.*_)?(?:host|hostname|ip|ip_address|address|addr|port|mac|pid|os|platform|arch)"
)
_DATE_ALONE = re.compile(r"\d{4}[-/.]?\d\d[-/.]?\d\d|\d\d?[-/.]\d\d?[-/.]\d{2,4}")
_NO_TIME = re.compile(r"(?:1970|1900|0001)-01-01")
_NEAR, _FAR = 20, 10
_NUMBER_OF_ROW = re.compile(
    r"|index|id|row|row_id|row_number|line|seq|sequence|unnamed_0|level_0"
)
_ALIAS = re.compile(
    r"(?<![a-z])(?:name|client|cid|user|node|device|party|participant|partition|member|site|"
    r"organi[sz]ation|org|institution|hospital|bank|collaborator)(?![a-z])"
)


def says(plain: str) -> bool:
    """Return whether a column's name says who was in a sum, or with which weight."""
    return bool(_SAYS.search(plain) or _SAYS_ALONE.fullmatch(plain))


def says_weight(plain: str) -> bool:
    """Return whether a column's name says that it holds weights."""
    return bool(_SAYS_WEIGHT.search(plain))


def says_sum(plain: str) -> bool:
    """Return whether a column's name says that it tells sums apart."""
    return bool(_SAYS_SUM.search(plain))


def says_neither(plain: str) -> bool:
    """Return whether a column's name is of what a client is, and not of the sum that it is in."""
    return bool(_SAYS_NEITHER.search(plain))


def says_alias(plain: str) -> bool:
    """Return whether a column's name says that it is another name of the clients."""
    return bool(_ALIAS.search(plain)) and not says_sum(plain)


def is_number_of_row(plain: str) -> bool:
    """Return whether a column's name is one of those under which tables number their rows."""
    return bool(_NUMBER_OF_ROW.fullmatch(plain))


def values_say(values: Sequence[Any]) -> bool:
    """Return whether a column's values say who was in a sum."""
    most = len(_YES | _NO | _NOTHING)
    texts = {text_of_cell(value).lower() for value in values[: most + 1]}
    if len(values) <= most and len(texts) > 1 and texts <= _YES | _NO | _NOTHING:
        return True
    written = "\n".join(value for value in values if isinstance(value, str))
    return any(_VALUE_SAYS.search(word) for word in set(_WORD.findall(written)))


def are_yes_and_no(values: Sequence[str]) -> bool:
    """Return whether all texts mean yes or no."""
    return {value.lower() for value in values} <= _YES | _NO


def says_loss(plain: str) -> bool:
    """Return whether a column's name says that something did not succeed."""
    return bool(_SAYS_NO.search(plain))


def is_nothing(text: str) -> bool:
    """Return whether a text stands for no value, or for a number that is none."""
    return text.lower() in _NOTHING


def denies(text: str) -> bool:
    """Return whether a text says that something did not succeed."""
    return bool(_VALUE_SAYS_NO.search(text)) and number_of(text) is None


def number_of(text: str) -> float | None:
    """Return a text as a finite number, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def good_texts(plain: str, texts: Sequence[str]) -> list[str] | None:
    """Return the texts that say that a row is in the sum of the round.

    None where none does.
    """
    is_no = bool(_SAYS_NO.search(plain))
    found = {text.lower() for text in texts}
    if found <= _YES | _NO | _NOTHING:
        yes = _NO | _NOTHING if is_no else _YES
        return _some([text for text in texts if text.lower() in yes], texts)
    if is_no and any(map(is_nothing, texts)):
        return [text for text in texts if is_nothing(text)]
    numbers = [number_of(text) for text in texts]
    if re.search(r"code|status|(?<![a-z])rc(?![a-z])", plain) and None not in numbers:
        fine = [
            value is not None and (value == 0 or 200 <= value < 300)
            for value in numbers
        ]
        return _some(
            [text for text, is_fine in zip(texts, fine, strict=True) if is_fine], texts
        )
    if any(map(_TRAINS.search, texts)):
        good = [
            text
            for text in texts
            if not (
                is_nothing(text)
                or _OTHERWISE.search(text)
                or _VALUE_SAYS_NO.search(text)
            )
        ]
        if _some(good, texts):
            return good
    if values_say(texts) or says(plain):
        good = [
            text
            for text in texts
            if not (is_nothing(text) or _VALUE_SAYS_NO.search(text))
        ]
        return _some(good, texts) if None in numbers else None
    return None


def _some(good: list[str], texts: Sequence[str]) -> list[str] | None:
    return good if 0 < len(good) < len(texts) else None


def strange_texts(plain: str, texts: Sequence[str]) -> list[str] | None:
    """Return the values that a time, host or metric has not by itself.

    None for other columns.
    They may say that a row was in no sum: nothing, NaN, a mark such as -1 among what
    varies freely.
    """
    if says(plain):
        return None
    if _METRICS.search(plain) and not _NO_METRIC.search(plain) and not says_sum(plain):
        return _strange_metrics(plain, texts)
    if _TIMES.fullmatch(plain):
        if sum(bool(_DATE_ALONE.fullmatch(text)) for text in texts) > 1:
            return None  # days, of which each may have separate rounds
        marks = _marks([number_of(text) for text in texts])
        return [
            text
            for text in texts
            if is_nothing(text)
            or number_of(text) in marks
            or _NO_TIME.match(text)
            or not re.search(r"\d", text)
            or _VALUE_SAYS.search(text)
        ]
    if _HOSTS.fullmatch(plain) and not says_sum(plain):
        return [text for text in texts if is_nothing(text) or _VALUE_SAYS.search(text)]
    return None


def _strange_metrics(plain: str, texts: Sequence[str]) -> list[str] | None:
    numbers = {text: number_of(text) for text in texts}
    known = [value for value in numbers.values() if value is not None]
    if not _RESOURCES.search(plain) and all(value.is_integer() for value in known):
        return None  # levels, counts or classes
    marks = _marks(known)
    if _SCORES.search(plain):
        marks -= {0.0, 1.0}
    return [text for text, value in numbers.items() if value is None or value in marks]


def _marks(numbers: Sequence[float | None]) -> set[float]:
    """Return the numbers that stand apart from the others, as marks of what did not happen.

    Those below 0 among positive ones; 0 where no other is near it; integers far above
    fractions.
    """
    known = {value for value in numbers if value is not None}
    above = {value for value in known if value > 0}
    if not above:
        return set()
    marks = {value for value in known if value < 0}
    if min(above) * _NEAR >= max(above):
        marks.add(0.0)
    fractions = [value for value in above if not value.is_integer()]
    if fractions:
        most = _FAR * max(fractions)
        marks |= {value for value in above if value.is_integer() and value > most}
    return marks


def measures(plain: str) -> bool:
    """Return whether a column's name is of a metric or a time, which no client is called."""
    is_time = len(plain) > 3 and _TIMES.fullmatch(plain)
    return bool(is_time or (len(plain) > 3 and _METRICS.search(plain)))


def is_count(plain: str) -> bool:
    """Return whether a column's name says that it counts samples, of which weights are made."""
    return bool(re.search(r"example|sample|count|size|records|num_", plain))
