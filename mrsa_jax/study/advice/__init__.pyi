from ._advice import (
    Advice as Advice,
    Demands as Demands,
    Reassigned as Reassigned,
)
from ._log import Measured as Measured, Rate as Rate
from ._options import Option as Option, Played as Played, Setting as Setting
from ._rounds import RoundsPrice as RoundsPrice
