"""F of eq. (6) next to the gap of one history in what trainings report."""

import numpy as np
import pytest

from mrsa_jax import availability, selection, study

RATES = (0.1, 0.5)


def trained(**changes):
    config = study.TrainConfig(
        scheme="uniform",
        rounds=3,
        population=study.PopulationConfig(
            num_clients=8, cohort_size=2, dropout_rates=RATES
        ),
        data=study.DataConfig(dataset="digits"),
        training=study.TrainingConfig(model="logistic"),
        **changes,
    )
    return study.run(config)


@pytest.mark.long
def test_a_training_reports_the_gap_of_expected_shares() -> None:
    """Of random selection it is exact: the shares of two rates, by all sets online."""
    results = trained()
    rates = np.asarray(results["dropout_rate"])
    online = availability.independent(rates)
    gap = selection.expected_fairness_gap(selection.uniform(8, 2), online)
    assert float(results["expected_fairness_gap"].squeeze()) == gap.value
    assert float(results["expected_fairness_error"].squeeze()) == 0
    (row,) = study.summarise(results)
    assert row.expected_fairness == f"{gap.value:.4f}"
    # one history of three rounds is mostly noise
    assert row.fairness_gap > 2 * gap.value


@pytest.mark.long
def test_of_clients_lost_inside_rounds_it_is_unknown() -> None:
    protocol = study.ProtocolConfig(step_dropout_rate=0.05)
    results = trained(protocol=protocol)
    assert np.isnan(results["expected_fairness_gap"]).all()
    assert study.summarise(results)[0].expected_fairness is None
