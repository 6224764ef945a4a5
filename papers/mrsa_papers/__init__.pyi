from ._catalog import ITEMS as ITEMS
from ._config import ReproduceConfig as ReproduceConfig, check_targets as check_targets
from ._driver import (
    SavedReproduction as SavedReproduction,
    remake as remake,
    run_and_save as run_and_save,
)
from ._folder import Made as Made
from .harness._items import Check as Check, Item as Item
from .multiround._echelon import echelon_estimate as echelon_estimate
