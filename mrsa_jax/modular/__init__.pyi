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
from ._shamir import (
    LIMBS as LIMBS,
    MOST_POINTS as MOST_POINTS,
    SHAMIR_PRIME as SHAMIR_PRIME,
    limbs_of as limbs_of,
    recover_secrets as recover_secrets,
    share_secrets as share_secrets,
    words_of_limbs as words_of_limbs,
)
