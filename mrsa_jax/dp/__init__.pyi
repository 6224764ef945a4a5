from ._account import Account as Account, account as account
from ._amplification import (
    Amplification as Amplification,
    amplification as amplification,
)
from ._lattice_noise import (
    LatticeNoise as LatticeNoise,
    discrete_gaussian as discrete_gaussian,
    skellam as skellam,
)
from ._ledger import Ledger as Ledger, ledger as ledger
from ._mechanism import RingMechanism as RingMechanism, ring_mechanism as ring_mechanism
from ._privacy_losses import privacy_losses as privacy_losses
from ._spending import toeplitz as toeplitz
