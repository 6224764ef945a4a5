"""The secure-aggregation protocol with real messages and real cryptography."""

from mrsa_jax.protocol._client import Client
from mrsa_jax.protocol._errors import (
    AuthenticationError,
    BothSecretsRequestedError,
    ForgedShareError,
    KeyAgreementError,
    MalformedMessageError,
    ProtocolError,
    TooFewSurvivorsError,
    UnexpectedMessageError,
)
from mrsa_jax.protocol._messages import (
    AdvertiseKeys,
    KeyList,
    MaskedInput,
    ShareList,
    SurvivorList,
    UnmaskShares,
)
from mrsa_jax.protocol._network import SERVER, Network, disturbed
from mrsa_jax.protocol._run import run
from mrsa_jax.protocol._server import Server
from mrsa_jax.protocol._shamir import recover, share

__all__ = [
    "SERVER",
    "AdvertiseKeys",
    "AuthenticationError",
    "BothSecretsRequestedError",
    "Client",
    "ForgedShareError",
    "KeyAgreementError",
    "KeyList",
    "MalformedMessageError",
    "MaskedInput",
    "Network",
    "ProtocolError",
    "Server",
    "ShareList",
    "SurvivorList",
    "TooFewSurvivorsError",
    "UnexpectedMessageError",
    "UnmaskShares",
    "disturbed",
    "recover",
    "run",
    "share",
]
