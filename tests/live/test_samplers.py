"""Samplers for pfl and FedJAX: the rollout's cohorts in the shape that each asks for."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.live.fedjax import ClientSampler
from mrsa_jax.live.pfl import UserSampler

_selector = functools.cache(lambda: mj.selection.batch_partitioning(12, 6, 3))
IDS = [f"{client:02}".encode() for client in range(12)]
ROUNDS = 6


class Data:
    """What FedJAX's `FederatedData` offers; clients come in an order of their own."""

    def __init__(self, ids: list[bytes]) -> None:
        self.ids = ids

    def client_ids(self) -> Any:
        return iter(self.ids)

    def get_clients(self, ids: Any) -> Any:
        return ((name, f"data of {name!r}") for name in ids)


@pytest.fixture(scope="module")
def cohorts() -> list[list[int]]:
    history = mj.selection.rollout(
        4, _selector(), mj.availability.independent(0.0), ROUNDS
    )
    return [np.flatnonzero(row).tolist() for row in np.asarray(history)]


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(
        ConfigurationError, match=r"`user_ids` must be as many .*; got 11 and 12"
    ):
        UserSampler(IDS[1:], _selector())
    with pytest.raises(
        ConfigurationError, match="`user_ids` must hold each client once"
    ):
        UserSampler(IDS[1:] + IDS[1:2], _selector())
    with pytest.raises(
        ConfigurationError, match="`selector` must ask K clients in every round"
    ):
        UserSampler(IDS, mj.selection.bernoulli(12, 0.5))
    with pytest.raises(
        ConfigurationError, match=r"`federated_data` must be as many .*; got 3 and"
    ):
        ClientSampler(Data(IDS[:3]), _selector())
    with pytest.raises(
        ConfigurationError, match="`federated_data` must have methods client_ids"
    ):
        ClientSampler(IDS, _selector())
    with pytest.raises(
        ConfigurationError, match="`round_num` must be at least 0; got -1"
    ):
        ClientSampler(Data(IDS), _selector()).set_round_num(-1)


def test_a_round_without_a_cohort_is_told() -> None:
    sampler = UserSampler(
        IDS, mj.selection.minimum_separation(mj.selection.uniform(12, 6), 3)
    )
    assert {sampler() for _ in range(12)} == set(IDS)
    with pytest.raises(
        ConfigurationError, match="`selector` must find a cohort in every round"
    ):
        sampler()


def test_users_of_pfl(cohorts: list[list[int]]) -> None:
    sampler = UserSampler(IDS, _selector(), seed=4)
    assert sampler.cohort_size == 6
    assert [[IDS.index(sampler()) for _ in range(6)] for _ in range(ROUNDS)] == cohorts


def test_clients_of_fedjax(cohorts: list[list[int]]) -> None:
    sampler = ClientSampler(Data(IDS[::-1]), _selector(), seed=4)
    sampled = [sampler.sample() for _ in range(ROUNDS)]
    assert [[IDS.index(name) for name, _, _ in cohort] for cohort in sampled] == cohorts
    assert all(
        data == f"data of {name!r}" for cohort in sampled for name, data, _ in cohort
    )
    keys = np.asarray([key for _, _, key in sampled[2]])
    np.testing.assert_array_equal(keys, jax.random.split(jax.random.PRNGKey(2), 6))
    sampler.set_round_num(3)
    later = ClientSampler(Data(IDS), _selector(), seed=4, start_round_num=3)
    for again in (sampler, later):
        assert [
            [IDS.index(name) for name, *_ in again.sample()] for _ in range(3)
        ] == cohorts[3:]
