"""Where what an extra brings is missing, one error says so with the line to paste."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import pytest

import mrsa_jax as mj
from mrsa_jax.bench import harness
from mrsa_watch._base.errors import how_to_install


def _shadow() -> object:
    trainer = mj.federated.local_sgd(mj.federated.logistic(10), 0.1, batch_size=10)
    return mj.attacks.membership("shadow", trainer, shadow_size=50)


_NOISES = itertools.count(2.0)  # losses of what was asked before are kept
USES: dict[str, tuple[str, Callable[[], object]]] = {
    "sklearn.linear_model": ("scikit-learn", _shadow),
    "dp_accounting.pld.privacy_loss_distribution": (
        "dp-accounting",
        lambda: mj.dp.amplification(12, 6, [1], 20, next(_NOISES)),
    ),
    "dp_accounting.rdp.rdp_privacy_accountant": (
        "dp-accounting",
        lambda: mj.dp.ring_mechanism(
            "skellam", 1.0, 1.0, dim=64, num_clients=12, modulus_bits=18
        ).epsilon(1e-5),
    ),
    "threadpoolctl": ("bench", harness.one_thread),
}


@pytest.mark.long("dp_accounting.pld.privacy_loss_distribution")
@pytest.mark.parametrize("module", USES)
def test_the_error_says_how_to_install_it(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra, use = USES[module]
    use()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(mj.ConfigurationError) as caught:
        use()
    assert str(caught.value).endswith(f": {how_to_install(extra)}")
    assert module in str(caught.value)
