from ._advice import Advice as Advice
from ._candidates import Setting as Setting
from ._choice import Demands as Demands
from ._log import Measured as Measured, Rate as Rate
from ._options import Option as Option
from ._play import Played as Played
