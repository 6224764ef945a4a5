from ._context import (
    Context as Context,
    rows_to_frame as rows_to_frame,
    schemes_for as schemes_for,
    targets_of as targets_of,
)
from ._datasets import is_data_of as is_data_of, substitution as substitution
from ._figures import (
    Draw as Draw,
    draw_seed_curves as draw_seed_curves,
    drawn as drawn,
    save_figure as save_figure,
)
from ._images import (
    image_as_cells as image_as_cells,
    image_from_text as image_from_text,
    stretched as stretched,
)
from ._intervals import (
    Interval as Interval,
    bands as bands,
    difference as difference,
    interval as interval,
    late_accuracy as late_accuracy,
)
from ._items import (
    Check as Check,
    Found as Found,
    Item as Item,
    Verdict as Verdict,
    compare as compare,
    state as state,
)
from ._rows import ANY as ANY, Miss as Miss, Row as Row
from ._settings import Setting as Setting, Values as Values
