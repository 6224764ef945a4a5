from ._points import RATES as RATES, Setting as Setting, power as power
