from . import views as views
from ._attribute import attribute as attribute
from ._canaries import CanaryScores as CanaryScores, canaries as canaries
from ._dense_recovery import dense_recovery as dense_recovery
from ._disaggregation import disaggregation as disaggregation
from ._distinguish import Distinguish as Distinguish, distinguish as distinguish
from ._exposing_server import exposing_server as exposing_server
from ._gradient_inversion import gradient_inversion as gradient_inversion
from ._inconsistency import model_inconsistency as model_inconsistency
from ._least_squares import (
    LeastSquares as LeastSquares,
    least_squares as least_squares,
    least_squares_attack as least_squares_attack,
    predicted_error as predicted_error,
    reconstruction_error as reconstruction_error,
    streamed_errors as streamed_errors,
)
from ._membership import membership as membership
from ._model_inversion import (
    identified as identified,
    model_inversion as model_inversion,
    read_models as read_models,
)
from ._scenarios import summed_rounds as summed_rounds, wire_round as wire_round
from ._scores import (
    matched_images as matched_images,
    mean_squared_error as mean_squared_error,
    membership_score as membership_score,
    psnr as psnr,
    ssim as ssim,
)
from ._view import Attack as Attack
