from ._judge import (
    blocks as blocks,
    grids as grids,
    judge as judge,
    nets as nets,
    rectangles as rectangles,
)
