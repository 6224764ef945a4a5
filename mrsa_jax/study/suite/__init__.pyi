from ._card import read_card as read_card
from ._compare import Row as Row, compare_cards as compare_cards
from ._page import value_words as value_words
from ._run import run_suite as run_suite
from ._scenarios import Version as Version, load_version as load_version
from ._table import write_table as write_table
from ._verify import (
    Difference as Difference,
    Verification as Verification,
    fresh_seeds as fresh_seeds,
    verify_card as verify_card,
)
