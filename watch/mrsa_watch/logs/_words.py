"""Meanings of names and values of columns: members of a sum, weights, times, metrics.

Patterns are of plain names: in small letters, their words joined by underscores.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from mrsa_watch._base.values import words_of
from mrsa_watch.logs._names import text_of_cell

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
WEIGHT = re.compile(
    r"example|sample|weight|size|num_data|data_?points?|records|coef"
    r"|(?<![a-z])(?:counts?|n|n_k|p|p_k|share|factor|alpha|scale|scaling|importance|contribution)"
    r"(?![a-z])|value"
)
LOSS = re.compile(
    r"fail|drop|error|(?<![a-z])err(?![a-z])|exception|reject|abort|cancel|crash|discard|exclud|"
    r"skip|timeout|timed_out|disconnect|offline|missing|lost|late|straggler|invalid"
)
SUM = re.compile(
    r"(?<![a-z])(?:run|seed|job|workflow|experiment|session|attempt|retry|retries|try|phase|"
    r"stage|mode|task|group|cluster|segment|component|aggregator|server|edge|hub|shard|region|zone|restart|"
    r"generation)(?![a-z])"
)
_VALUE_SAYS = re.compile(
    r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:ok|okay|success(?:ful)?|succeeded|completed?|"
    r"fail(?:ed|ure|s)?|finished|done|drop(?:ped|out|s)?|error|exception|accepted|rejected|"
    r"abort(?:ed)?|cancel(?:l?ed)?|crash(?:ed)?|discarded|excluded|included|skipped|aggregated|"
    r"survived|straggler|timeout|timed|disconnected|offline|missing|lost|late|killed|refused|"
    r"status|examples|samples)(?![a-z])"
)
_VALUE_DENIES = re.compile(
    r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:fail|drop|error|exception|reject|abort|cancel|"
    r"crash|discard|exclud|skip|straggler|timeout|timed|disconnect|offline|missing|lost|late|"
    r"killed|refused|(?:none|not|no)(?![a-z])|unavailable|invalid|(?:in|un)complete|un\w+ful)"
)
_WORD = re.compile(r"[A-Za-z]{2,}")
_YES = frozenset(words_of("1 1.0 true t yes y"))
_NO = frozenset(words_of("0 0.0 false f no n"))
_NOTHING = frozenset(
    ["", *words_of("none null nan nat na n/a - inf -inf infinity -infinity <na>")]
)
_STATUS = re.compile(r"code|status|(?<![a-z])rc(?![a-z])")
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
NEITHER = re.compile(
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
# 0 is a mark where positive numbers differ by at most this factor
_NEAR = 20
# an integer is a mark where it is so many times the largest fraction
_FAR = 10
COUNT = re.compile(r"example|sample|count|size|records|num_")
NUMBER_OF_ROW = re.compile(
    r"|index|id|row|row_id|row_number|line|seq|sequence|unnamed_0|level_0"
)
_ALIAS = re.compile(
    r"(?<![a-z])(?:name|client|cid|user|node|device|party|participant|partition|member|site|"
    r"organi[sz]ation|org|institution|hospital|bank|collaborator)(?![a-z])"
)


def says(plain: str) -> bool:
    """Return whether a column's name says who was in a sum, or with which weight."""
    return bool(_SAYS.search(plain) or _SAYS_ALONE.fullmatch(plain))


def says_alias(plain: str) -> bool:
    """Return whether a column's name says that it is another name of the clients."""
    return bool(_ALIAS.search(plain)) and not SUM.search(plain)


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


def is_nothing(text: str) -> bool:
    """Return whether a text stands for no value, or for a number that is none."""
    return text.lower() in _NOTHING


def denies(text: str) -> bool:
    """Return whether a text says that something did not succeed."""
    return bool(_VALUE_DENIES.search(text)) and parse_float(text) is None


def parse_float(text: str) -> float | None:
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

    def those(is_good: Callable[[str], object]) -> list[str] | None:
        good = [text for text in texts if is_good(text)]
        return good if 0 < len(good) < len(texts) else None

    def is_fine(text: str) -> bool:
        return not (is_nothing(text) or _VALUE_DENIES.search(text))

    is_loss = LOSS.search(plain)
    if {text.lower() for text in texts} <= _YES | _NO | _NOTHING:
        yes = _NO | _NOTHING if is_loss else _YES
        return those(lambda text: text.lower() in yes)
    if is_loss and any(map(is_nothing, texts)):
        return those(is_nothing)
    are_numbers = all(parse_float(text) is not None for text in texts)
    if are_numbers and _STATUS.search(plain):
        return those(lambda text: float(text) == 0 or 200 <= float(text) < 300)
    if any(map(_TRAINS.search, texts)):
        good = those(lambda text: is_fine(text) and not _OTHERWISE.search(text))
        if good:
            return good
    if not are_numbers and (says(plain) or values_say(texts)):
        return those(is_fine)
    return None


def strange_texts(plain: str, texts: Sequence[str]) -> list[str] | None:
    """Return the values that a time, host or metric has not by itself.

    None for other columns.
    They may say that a row was in no sum: nothing, NaN, a mark such as -1 among what
    varies freely.
    """
    if says(plain):
        return None
    if (
        _METRICS.search(plain)
        and not _NO_METRIC.search(plain)
        and not SUM.search(plain)
    ):
        return _strange_metrics(plain, texts)
    if _TIMES.fullmatch(plain):
        if sum(bool(_DATE_ALONE.fullmatch(text)) for text in texts) > 1:
            return None  # days, of which each may have separate rounds
        marks = _marks([parse_float(text) for text in texts])
        return [
            text
            for text in texts
            if is_nothing(text)
            or parse_float(text) in marks
            or _NO_TIME.match(text)
            or not re.search(r"\d", text)
            or _VALUE_SAYS.search(text)
        ]
    if _HOSTS.fullmatch(plain) and not SUM.search(plain):
        return [text for text in texts if is_nothing(text) or _VALUE_SAYS.search(text)]
    return None


def _strange_metrics(plain: str, texts: Sequence[str]) -> list[str] | None:
    numbers = {text: parse_float(text) for text in texts}
    finite = [value for value in numbers.values() if value is not None]
    if not _RESOURCES.search(plain) and all(map(float.is_integer, finite)):
        return None  # levels, counts or classes
    marks = _marks(finite)
    if _SCORES.search(plain):
        marks -= {0.0, 1.0}
    return [text for text, value in numbers.items() if value is None or value in marks]


def _marks(numbers: Sequence[float | None]) -> set[float]:
    """Return numbers apart from the others, as marks of events that did not happen.

    Those below 0 among positive ones; 0 where no other is near it; integers far above
    fractions.
    """
    finite = {value for value in numbers if value is not None}
    positive = {value for value in finite if value > 0}
    if not positive:
        return set()
    marks = {value for value in finite if value < 0}
    if min(positive) * _NEAR >= max(positive):
        marks.add(0.0)
    whole = set(filter(float.is_integer, positive))
    if whole < positive:
        most = _FAR * max(positive - whole)
        marks |= {value for value in whole if value > most}
    return marks


def measures(plain: str) -> bool:
    """Return whether a column is of a metric or a time, unlike a client's name."""
    return len(plain) > 3 and bool(_TIMES.fullmatch(plain) or _METRICS.search(plain))
