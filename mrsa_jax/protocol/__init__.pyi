from . import errors as errors, messages as messages
from ._client import Client as Client
from ._pledge import Pledge as Pledge
from ._run import run as run
from ._server import Server as Server
from ._terms import Terms as Terms, model_digest as model_digest
from .shamir import recover as recover, share as share
