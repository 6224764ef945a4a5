from ._axes import (
    Sweep as Sweep,
    load_sweep as load_sweep,
    parse_sweep as parse_sweep,
    sweep_of as sweep_of,
)
from ._engine import (
    complete as complete,
    run_on_workers as run_on_workers,
    run_sweep as run_sweep,
)
from ._plan import Machine as Machine, Plan as Plan, plan_sweep as plan_sweep
from ._store import SweepStore as SweepStore, check_sweep_output as check_sweep_output
from ._sweep import best_rows as best_rows, best_sentences as best_sentences
