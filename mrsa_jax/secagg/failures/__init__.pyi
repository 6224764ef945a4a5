from ._judging import draw_arrays as draw_arrays, judge_arrays as judge_arrays
from ._rare import RareRate as RareRate
from ._theory import proposition1_bound as proposition1_bound
