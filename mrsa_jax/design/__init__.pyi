from ._judge import (
    Judgement as Judgement,
    blocks as blocks,
    grids as grids,
    judge as judge,
    nets as nets,
    rectangles as rectangles,
)
