from ._failures import RATES as RATES, power as power
from ._setting import Setting as Setting
