from . import shamir as shamir
from ._chacha20 import chacha20_columns as chacha20_columns, keystream as keystream
from ._linalg import rank as rank, rank_trajectory as rank_trajectory
from ._ring import (
    Ring as Ring,
    add as add,
    check_modulus as check_modulus,
    reduce_words as reduce_words,
    ring_of as ring_of,
    ring_sum_over as ring_sum_over,
    subtract as subtract,
)
