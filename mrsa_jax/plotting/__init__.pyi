from .attack_charts import (
    plot_error_histogram as plot_error_histogram,
    plot_image_grid as plot_image_grid,
    plot_roc as plot_roc,
)
from .audit_charts import (
    plot_amplification as plot_amplification,
    plot_audit_exposure as plot_audit_exposure,
    plot_audit_privacy as plot_audit_privacy,
    plot_exposure_routes as plot_exposure_routes,
)
from .design_charts import (
    plot_designs as plot_designs,
    plot_participation as plot_participation,
    plot_policies as plot_policies,
    plot_rounds as plot_rounds,
)
from .points import (
    plot_accuracy_epsilon as plot_accuracy_epsilon,
    plot_points as plot_points,
    plot_privacy_cost as plot_privacy_cost,
    plot_tradeoff as plot_tradeoff,
)
from .saved import save_figure as save_figure, save_study_figures as save_study_figures
from .study_charts import plot_study as plot_study
from .styles import scheme_colour as scheme_colour, style as style
