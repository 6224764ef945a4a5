"""Forms of convolution, for kernels that differ from client to client."""
