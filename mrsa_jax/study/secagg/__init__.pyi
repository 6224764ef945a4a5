from ._points import RATES as RATES, power as power
from ._setting import Setting as Setting
