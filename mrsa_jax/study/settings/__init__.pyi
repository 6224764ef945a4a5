from ._names import in_settings as in_settings
from ._tables import check_unset as check_unset
