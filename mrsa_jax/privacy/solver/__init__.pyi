from ._bounds import (
    Bounds as Bounds,
    bounds as bounds,
    leverage_bound as leverage_bound,
    leverage_seconds as leverage_seconds,
    random_projection as random_projection,
)
from ._candidates import (
    few_rounds as few_rounds,
    information_sets as information_sets,
    program_seconds as program_seconds,
    sparse_remainder as sparse_remainder,
)
from ._costs import (
    girth_work as girth_work,
    lifting_work as lifting_work,
    light_sets as light_sets,
    num_parts as num_parts,
)
from ._ranks import (
    CHEAP_SECONDS as CHEAP_SECONDS,
    Groups as Groups,
    Ranks as Ranks,
    collapse as collapse,
    column_codes as column_codes,
    combination_on as combination_on,
    independent_rows as independent_rows,
    ranks_of as ranks_of,
    reduced_echelon as reduced_echelon,
    residues_of as residues_of,
    solve_each as solve_each,
    support_of as support_of,
)
from ._search import (
    Plan as Plan,
    Progress as Progress,
    parity_checks as parity_checks,
    run as run,
)
from ._space import (
    Alone as Alone,
    Sieve as Sieve,
    Space as Space,
    Vector as Vector,
    one_round as one_round,
)
from ._through import Through as Through
