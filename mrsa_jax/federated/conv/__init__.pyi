from ._forms import (
    conv as conv,
    conv_relu as conv_relu,
    conv_relu_pool as conv_relu_pool,
)
from ._tile import (
    patch_conv as patch_conv,
    pooled_size as pooled_size,
    strided_patch_conv as strided_patch_conv,
)
from ._winograd import toom_cook as toom_cook
