from mrsa_watch import (
    Gate as Gate,
    GateAnswer as GateAnswer,
    GateState as GateState,
    Recorder as Recorder,
    follow as follow,
)
