from ._checkpoint import checkpoints as checkpoints
from ._convergence import (
    ConvexConstants as ConvexConstants,
    convergence_bound as convergence_bound,
    rounds_to_reach as rounds_to_reach,
)
from ._convolutional import (
    cnn as cnn,
    lenet as lenet,
    smooth_lenet as smooth_lenet,
    vgg11 as vgg11,
)
from ._drift import Drift as Drift, measure_drift as measure_drift
from ._evaluate import evaluate as evaluate, evaluate_clients as evaluate_clients
from ._json_lines import json_lines as json_lines
from ._local import (
    LocalSGD as LocalSGD,
    LocalTrainer as LocalTrainer,
    RateSchedule as RateSchedule,
    client_updates as client_updates,
    decay_at as decay_at,
    local_sgd as local_sgd,
)
from ._many import train_many as train_many
from ._models import (
    initial_parameters as initial_parameters,
    logistic as logistic,
    mlp as mlp,
    num_parameters as num_parameters,
    unflatten as unflatten,
)
from ._optimizers import (
    LocalOptax as LocalOptax,
    Scaffold as Scaffold,
    local_optax as local_optax,
    scaffold as scaffold,
)
from ._program import memory_estimate as memory_estimate
from ._quadratic import (
    QuadraticProblem as QuadraticProblem,
    quadratic_problem as quadratic_problem,
    simulate_convergence as simulate_convergence,
)
from ._run import TrainingResult as TrainingResult
from ._train import train as train
from ._training import Training as Training
from .programs import StatefulTrainer as StatefulTrainer
