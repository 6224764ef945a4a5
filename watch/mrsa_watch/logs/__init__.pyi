from ._evidence import EVIDENCE as EVIDENCE, Evidence as Evidence
from ._identity import (
    AlikeError as AlikeError,
    Names as Names,
    PseudonymNames as PseudonymNames,
    Pseudonyms as Pseudonyms,
    client_text as client_text,
    is_pseudonym as is_pseudonym,
)
from ._integers import integer_rows as integer_rows
from ._json import MOST_LINE_BYTES as MOST_LINE_BYTES
from ._jsonl import (
    FORMAT as FORMAT,
    STATUSES as STATUSES,
    TORN as TORN,
    VERSION as VERSION,
    LineParser as LineParser,
    SumLine as SumLine,
    load_exactly as load_exactly,
)
from ._names import PartNames as PartNames
from ._numbers import (
    SCALE_RULE as SCALE_RULE,
    common_denominator as common_denominator,
    exact_value as exact_value,
    exact_weight as exact_weight,
)
from ._participation import sums_of as sums_of
from ._read import read_log as read_log
from ._table import (
    ParticipationLog as ParticipationLog,
    of_part as of_part,
    printed_round as printed_round,
)
