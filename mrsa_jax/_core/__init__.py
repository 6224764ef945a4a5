"""What every family builds on.

- `arrays`: Arrays from what users pass, and what functions of them owe to a caller's
  `jit`.
- `chacha20`: ChaCha20 in one launch on NVIDIA GPUs.
- `chacha20_loops`: ChaCha20 keystream as a compiled loop, for pads on the CPU (RFC
  8439).
- `compile_cache`: Keep compiled programs on disk, between runs. Nothing here imports
  JAX.
- `compiled`: Compiled loops for exact searches on the CPU; elimination modulo a prime
  below 2**31.
- `cores`: How many of the machine's cores there are to use; needed before JAX may be
  imported.
- `device`: What the device is and which form of an operation runs on it.
- `device_words`: What commands say about the device.
- `factories`: What factories of schemes do with traced numbers, and which program runs
  a scheme.
- `flags`: Kinds of optional settings, as the command line's help shows them.
- `floats`: NumPy's usual treatment of floating-point errors.
- `gaussian`: Telling N(0, 1) from N(mu, 1), and the privacy that it stands for.
- `kernels`: How a kernel for NVIDIA GPUs is launched (Pallas, through Triton).
- `memory`: What memory is left, and when work is refused for want of it.
- `packaged`: Files that this package holds; `data/files/README.md` says whose they are.
- `prime`: Arithmetic modulo a 31-bit prime on uint32 arrays; integers of any size
  modulo a prime.
- `registry`: Members of a family by name, and a user's files and modules that register
  them.
- `round_rules`: What the server learns from one round of the protocol: rules as values.
- `sealed`: Arrays in one .npz with a digest of it at its end.
- `selector`: What every selection scheme offers, and the state that it keeps.
- `sources`: What code is made of: texts of modules, versions, and what an object
  reaches.
- `state`: The digest of all that an object reaches, with a rule for each kind of
  object.
- `statistics`: Exact intervals of chances that were counted.
- `status`: The steps of a round, and what became of it.
- `streams`: Named random streams: which key every draw comes from; exact chances on
  words.
- `threefry_loops`: Threefry-2x32 in compiled loops: the words and keys of `streams`.
"""
