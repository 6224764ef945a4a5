from ._canaries import Canaries as Canaries, CanaryScores as CanaryScores, canaries as canaries
from ._dense_recovery import dense_recovery as dense_recovery
from ._disaggregation import Disaggregation as Disaggregation, disaggregation as disaggregation
from ._distinguish import Distinguish as Distinguish, distinguish as distinguish
from ._gradient_inversion import (
    GradientInversion as GradientInversion,
    gradient_inversion as gradient_inversion,
    inferred_labels as inferred_labels,
    total_variation as total_variation,
)
from ._inconsistency import model_inconsistency as model_inconsistency, silenced as silenced
from ._least_squares import (
    LeastSquares as LeastSquares,
    least_squares as least_squares,
    least_squares_attack as least_squares_attack,
    predicted_error as predicted_error,
    reconstruction_error as reconstruction_error,
    streamed_errors as streamed_errors,
    windows as windows,
)
from ._membership import (
    Membership as Membership,
    membership as membership,
    true_logits as true_logits,
)
from ._model_inversion import (
    ModelInversion as ModelInversion,
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
from ._view import (
    AggregateView as AggregateView,
    Attack as Attack,
    CountView as CountView,
    MembershipView as MembershipView,
    ModelView as ModelView,
    UpdateView as UpdateView,
    WireView as WireView,
    checked_view as checked_view,
)
