from ._client import Client as Client
from ._errors import (
    AuthenticationError as AuthenticationError,
    BothSecretsRequestedError as BothSecretsRequestedError,
    ForgedShareError as ForgedShareError,
    KeyAgreementError as KeyAgreementError,
    MalformedMessageError as MalformedMessageError,
    ProtocolError as ProtocolError,
    TooFewSurvivorsError as TooFewSurvivorsError,
    UnexpectedMessageError as UnexpectedMessageError,
)
from ._messages import (
    AdvertiseKeys as AdvertiseKeys,
    KeyList as KeyList,
    MaskedInput as MaskedInput,
    ShareList as ShareList,
    SurvivorList as SurvivorList,
    UnmaskShares as UnmaskShares,
)
from ._run import SERVER as SERVER, Network as Network, disturbed as disturbed, run as run
from ._server import Server as Server
from ._shamir import recover as recover, share as share
