from ._families import blocks as blocks, grids as grids, nets as nets, rectangles as rectangles
from ._judge import Judgement as Judgement, judge as judge
