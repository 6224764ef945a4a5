from ._follow import follow as follow
from ._gate import Gate as Gate, GateAnswer as GateAnswer, GateState as GateState
from ._recorder import Recorder as Recorder
