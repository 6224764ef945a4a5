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
    ShareKeys,
    ShareList,
    SignatureList,
    SignedSurvivors,
    SurvivorList,
    UnmaskShares,
)
from mrsa_jax.protocol._network import SERVER, Network, disturbed
from mrsa_jax.protocol._packing import residue_bits
from mrsa_jax.protocol._run import run
from mrsa_jax.protocol._server import Server
from mrsa_jax.protocol._shamir import recover, share
from mrsa_jax.protocol._wire import HEADER_BYTES, SEALED_BYTES, SHARE_BYTES

__all__ = [
    "HEADER_BYTES",
    "SEALED_BYTES",
    "SERVER",
    "SHARE_BYTES",
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
    "ShareKeys",
    "ShareList",
    "SignatureList",
    "SignedSurvivors",
    "SurvivorList",
    "TooFewSurvivorsError",
    "UnexpectedMessageError",
    "UnmaskShares",
    "disturbed",
    "recover",
    "residue_bits",
    "run",
    "share",
]
