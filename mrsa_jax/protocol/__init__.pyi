from . import errors as errors, messages as messages
from ._client import Client as Client
from ._run import run as run
from ._server import Server as Server
from ._shamir import recover as recover, share as share
from ._terms import Pledge as Pledge, Terms as Terms
