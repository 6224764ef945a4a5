"""Forms of convolution, for kernels that differ from client to client."""

from mrsa_jax.federated.conv._forms import conv, conv_relu, conv_relu_pool
from mrsa_jax.federated.conv._patch import patch_conv, strided_patch_conv
from mrsa_jax.federated.conv._tile import pooled_size
from mrsa_jax.federated.conv._toom_cook import toom_cook

__all__ = [
    "conv",
    "conv_relu",
    "conv_relu_pool",
    "patch_conv",
    "pooled_size",
    "strided_patch_conv",
    "toom_cook",
]
